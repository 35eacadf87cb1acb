#include "hostile.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

void say_attributes(struct node *node, struct fuse_attr *out) {
    memset(out, 0, sizeof *out);
    out->ino = node->inode;
    out->mode = node->type | (node->type == S_IFDIR ? 0777 : 0666);
    out->nlink = node->type == S_IFDIR ? 2 : 1;
    out->size = node->type == S_IFREG ? 4096 : 0;
    out->blocks = 8;
    out->blksize = 4096;
    static const uint32_t types[] = {S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFBLK, S_IFCHR, 0};
    switch (node->oddity) {
    case SIZE:
        out->size = INT64_MAX;
        out->blocks = UINT64_MAX;
        out->blksize = UINT32_MAX;
        break;
    case LATE: out->size = (uint64_t)node->number; break;
    case NEGATIVE: out->size = UINT64_MAX; break;
    case TIME:
        out->atime = (uint64_t)INT64_MIN;
        out->mtime = (uint64_t)INT64_MAX;
        out->ctime = UINT64_MAX;
        out->atimensec = 1000000000;
        out->mtimensec = UINT32_MAX;
        out->ctimensec = INT32_MAX;
        break;
    case LINKS: out->nlink = any_number() & 1 ? 0 : UINT32_MAX; break;
    case MODE: out->mode = node->type | 0xffff0fff; break;
    case TYPE: out->mode = types[any_number() % 8] | 0777; break;
    case RANDOM:
        out->ino = odd_number();
        out->size = odd_number() & INT64_MAX;
        out->blocks = odd_number();
        out->atime = odd_number();
        out->mtime = odd_number();
        out->ctime = odd_number();
        out->atimensec = (uint32_t)odd_number();
        out->mtimensec = (uint32_t)odd_number();
        out->ctimensec = (uint32_t)odd_number();
        out->nlink = (uint32_t)odd_number();
        out->uid = (uint32_t)odd_number();
        out->gid = (uint32_t)odd_number();
        out->rdev = (uint32_t)odd_number();
        out->blksize = (uint32_t)odd_number();
        out->mode = node->type | ((uint32_t)any_number() & 07777);
        break;
    default: break;
    }
}

static void say_entry(struct node *node, struct fuse_entry_out *out) {
    memset(out, 0, sizeof *out);
    out->nodeid = node->id;
    say_attributes(node, &out->attr);
    if (node->oddity != RANDOM) return;
    // The reply is valid for a moment only, so that the kernel asks again soon and gets odd replies
    // often.
    out->generation = odd_number();
    out->entry_valid_nsec = (uint32_t)odd_number();
}

void answer_entry(const struct fuse_in_header *in, struct node *node) {
    struct fuse_entry_out out;
    if (node == NULL) {
        answer(in->unique, ENOENT, NULL, 0);
        return;
    }
    say_entry(node, &out);
    answer(in->unique, 0, &out, sizeof out);
}

void answer_space(const struct fuse_in_header *in) {
    struct fuse_statfs_out out = {.st = {.blocks = 1000, .bfree = 500, .bavail = 500, .files = 10, .ffree = 5, .bsize = 4096, .namelen = 255, .frsize = 4096}};
    if (!strcmp(space, "files")) out.st.files = out.st.ffree = UINT64_MAX;
    if (!strcmp(space, "blocks")) {
        out.st.blocks = out.st.bfree = out.st.bavail = 1ull << 56;
        out.st.bsize = out.st.frsize = 1u << 30;
    }
    if (!strcmp(space, "all")) memset(&out, 0xff, sizeof out);
    answer(in->unique, 0, &out, sizeof out);
}

// The names at the root, and the entries of a listing. The last ones name no node, and some may not
// be valid names.
static const char *const listed[] = {
    ".", "..", "f-plain", "f-size", "f-negative", "f-time", "f-inode0", "f-inode1", "f-inode42", "d-inode42", "l-inode42", "p-inode42",
    "f-inode18446744073709551615", "f-links", "f-mode", "f-type", "d-type", "f-length", "f-seek", "f-control", "f-attribute", "d-list", "d-plain",
    "l-long", "l-empty", "l-plain", "p-plain", "f-error1", "f-error511", "f-error512", "f-error524", "f-error4095", "f-error4096",
    "f-error2147483648", "d-error5", "f-random", "d-random", "l-random",
};
static const char *const odd[] = {"", ".", "..", "a/b", "/", "\n", "\xff\xfe", "x", "x", "f-plain"};
enum { LISTED = sizeof listed / sizeof *listed, ODD = sizeof odd / sizeof *odd };

static size_t put(char *place, size_t room, const char *name, size_t length, uint64_t inode, uint64_t next, uint32_t type, int plus, struct node *node) {
    size_t head = plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;
    size_t whole = (head + length + 7) & ~(size_t)7;
    if (whole > room) return 0;
    memset(place, 0, whole);
    struct fuse_dirent entry = {.ino = inode, .off = next, .namelen = (uint32_t)length, .type = type};
    if (plus) {
        struct fuse_entry_out full = {0};
        if (node) say_entry(node, &full);
        memcpy(place, &full, sizeof full);
    }
    memcpy(place + head - FUSE_NAME_OFFSET, &entry, FUSE_NAME_OFFSET);
    memcpy(place + head, name, length);
    return whole;
}

void answer_listing(const struct fuse_in_header *in, struct node *node, const struct fuse_read_in *read) {
    static char buffer[64 << 10], longest[1024];
    int plus = in->opcode == FUSE_READDIRPLUS;
    size_t room = read->size < sizeof buffer ? read->size : sizeof buffer, used = 0;
    if (node->oddity == RANDOM || node->oddity == LIST) {
        // The listing has no end unless it is stopped, so it ends after a few hundred parts.
        if (++node->number % 200 == 0) {
            answer(in->unique, 0, NULL, 0);
            return;
        }
        for (int i = 0; i < 12; i++) {
            uint64_t pick = any_number() % (ODD + 3);
            memset(longest, 'n', sizeof longest);
            const char *name = pick < ODD ? odd[pick] : pick == ODD ? "nul\0inside" : longest;
            size_t length = pick < ODD ? strlen(name) : pick == ODD ? 10 : pick == ODD + 1 ? 255 : 1024;
            // The kernel ends a listing at an invalid name, so only some listings have one.
            if (any_number() % 16 && (length == 0 || memchr(name, '/', length))) continue;
            used += put(buffer + used, room - used, name, length, odd_number(), odd_number(), (uint32_t)odd_number(), plus, NULL);
        }
    } else if (node->id == 1) {
        for (uint64_t i = read->offset; i < LISTED; i++) {
            struct node *child = node_named(listed[i], strlen(listed[i]));
            size_t more = put(buffer + used, room - used, listed[i], strlen(listed[i]), child ? child->inode : 1, i + 1, child ? child->type >> 12 : 4, plus, child);
            if (more == 0) break;
            used += more;
        }
    }
    answer(in->unique, 0, buffer, used);
}
