#include "hostile.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void read_file(const struct fuse_in_header *in, struct node *node, const struct fuse_read_in *read) {
    static char data[256 << 10];
    size_t size = read->size < sizeof data / 2 ? read->size : sizeof data / 2;
    if (node->oddity == LENGTH || node->oddity == RANDOM) {
        size_t sizes[] = {0, 1, size / 2, size, size + 1, size * 2};
        size = sizes[any_number() % 6];
    }
    answer(in->unique, 0, data, size);
}

static void write_file(const struct fuse_in_header *in, struct node *node, uint32_t size) {
    struct fuse_write_out out = {.size = size};
    if (node->oddity == LATE) {
        node->number += size;
        if (puts("written") < 0 || fflush(stdout) != 0) return;
        sleep(1);
    }
    if (node->oddity == LENGTH || node->oddity == RANDOM) {
        uint32_t sizes[] = {0, 1, size / 2, size, size + 1, UINT32_MAX};
        out.size = sizes[any_number() % 6];
    }
    answer(in->unique, 0, &out, sizeof out);
}

static void seek(const struct fuse_in_header *in, struct node *node, const struct fuse_lseek_in *asked) {
    struct fuse_lseek_out out = {.offset = asked->offset};
    if (node->oddity == SEEK || node->oddity == RANDOM) out.offset = odd_number();
    answer(in->unique, 0, &out, sizeof out);
}

static void control(const struct fuse_in_header *in, struct node *node, const struct fuse_ioctl_in *asked) {
    struct { struct fuse_ioctl_out head; char data[64]; } out = {0};
    static const int32_t results[] = {INT32_MIN, INT32_MIN + 1, -4096, -4095, -524, -512, -1, 0, 1, INT32_MAX};
    if (node->oddity == CONTROL) {
        // The lowest number comes first, because it has no positive counterpart.
        out.head.result = results[(uint64_t)node->number++ % 10];
    } else if (node->oddity == RANDOM) {
        out.head.result = (int32_t)odd_number();
        out.head.flags = (uint32_t)any_number() & 7;
    }
    size_t size = asked->out_size < sizeof out.data ? asked->out_size : sizeof out.data;
    answer(in->unique, 0, &out, sizeof out.head + size);
}

static void attribute(const struct fuse_in_header *in, struct node *node, const struct fuse_getxattr_in *asked) {
    static char list[64 << 10];
    struct fuse_getxattr_out size = {.size = 8};
    int isOdd = node->oddity == ATTRIBUTE || node->oddity == RANDOM;
    if (asked->size == 0) {
        if (isOdd) size.size = (uint32_t)odd_number();
        answer(in->unique, 0, &size, sizeof size);
        return;
    }
    // Names without an end, and empty ones.
    memset(list, any_number() & 1 ? 'u' : 0, sizeof list);
    size_t most = asked->size < sizeof list ? asked->size : sizeof list;
    size_t sizes[] = {0, 1, most / 2, most, most + 1};
    answer(in->unique, 0, list, isOdd ? sizes[any_number() % 5] : 0);
}

static void open_node(const struct fuse_in_header *in) {
    struct fuse_open_out out = {.fh = in->nodeid, .open_flags = any_number() & 1 ? FOPEN_DIRECT_IO : 0};
    answer(in->unique, 0, &out, sizeof out);
}

static void lock(const struct fuse_in_header *in, struct node *node, const struct fuse_lk_in *asked) {
    struct fuse_lk_out out = {.lk = asked->lk};
    out.lk.type = 2;
    if (node->oddity == RANDOM) out.lk = (struct fuse_file_lock){odd_number(), odd_number(), (uint32_t)any_number() & 3, (uint32_t)odd_number()};
    answer(in->unique, 0, &out, sizeof out);
}

static void create(const struct fuse_in_header *in, const char *name) {
    struct { struct fuse_entry_out entry; struct fuse_open_out open; } out = {0};
    struct node *node = node_named(name, strlen(name));
    if (node == NULL) {
        answer(in->unique, ENOSPC, NULL, 0);
        return;
    }
    out.entry.nodeid = node->id;
    say_attributes(node, &out.entry.attr);
    answer(in->unique, 0, &out, sizeof out);
}

static void link_text(const struct fuse_in_header *in, struct node *node) {
    static char text[8192];
    memset(text, 't', sizeof text);
    size_t length = node->oddity == LONG ? 4095 : node->oddity == EMPTY ? 0 : node->oddity == RANDOM ? any_number() % 8192 : 6;
    answer(in->unique, 0, text, length);
}

void answer_for(const struct fuse_in_header *in, struct node *node, const void *body) {
    struct fuse_attr_out attributes = {0};
    int passes = in->opcode == FUSE_GETATTR || in->opcode == FUSE_RELEASE || in->opcode == FUSE_RELEASEDIR;
    if (node->oddity == ERROR && !passes) {
        answer(in->unique, (int)(uint32_t)node->number, NULL, 0);
        return;
    }
    if (node->oddity == RANDOM && !passes && any_number() % 4 == 0) {
        answer(in->unique, (int)(uint32_t)odd_number(), NULL, 0);
        return;
    }
    switch (in->opcode) {
    case FUSE_GETATTR:
    case FUSE_SETATTR:
        say_attributes(node, &attributes.attr);
        answer(in->unique, 0, &attributes, sizeof attributes);
        return;
    case FUSE_READLINK: link_text(in, node); return;
    case FUSE_OPEN:
    case FUSE_OPENDIR: open_node(in); return;
    case FUSE_READ: read_file(in, node, body); return;
    case FUSE_WRITE: write_file(in, node, ((const struct fuse_write_in *)body)->size); return;
    case FUSE_COPY_FILE_RANGE: write_file(in, node, (uint32_t)((const struct fuse_copy_file_range_in *)body)->len); return;
    case FUSE_READDIR:
    case FUSE_READDIRPLUS: answer_listing(in, node, body); return;
    case FUSE_LSEEK: seek(in, node, body); return;
    case FUSE_IOCTL: control(in, node, body); return;
    case FUSE_GETXATTR:
    case FUSE_LISTXATTR: attribute(in, node, body); return;
    case FUSE_GETLK: lock(in, node, body); return;
    case FUSE_CREATE: create(in, (const char *)body + sizeof(struct fuse_create_in)); return;
    case FUSE_MKNOD: answer_entry(in, node_named((const char *)body + sizeof(struct fuse_mknod_in), strlen((const char *)body + sizeof(struct fuse_mknod_in)))); return;
    case FUSE_MKDIR: answer_entry(in, node_named((const char *)body + sizeof(struct fuse_mkdir_in), strlen((const char *)body + sizeof(struct fuse_mkdir_in)))); return;
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH:
    case FUSE_FSYNC:
    case FUSE_FSYNCDIR:
    case FUSE_ACCESS:
    case FUSE_FALLOCATE:
    case FUSE_SETXATTR:
    case FUSE_REMOVEXATTR:
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_RENAME:
    case FUSE_RENAME2: answer(in->unique, 0, NULL, 0); return;
    default: answer(in->unique, ENOSYS, NULL, 0); return;
    }
}
