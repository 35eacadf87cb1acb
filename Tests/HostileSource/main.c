// HostileSource MOUNTPOINT [files|blocks|all]: mounts itself there, as root, and answers in the
// foreground until it is unmounted or killed.
#include "hostile.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int device;
const char *space = "";

void answer(uint64_t unique, int error, const void *data, size_t size) {
    struct fuse_out_header out = {(uint32_t)(sizeof out + size), -error, unique};
    struct iovec parts[2] = {{&out, sizeof out}, {(void *)data, size}};
    if (error != 0) out.len = sizeof out, parts[1].iov_len = 0;
    if (writev(device, parts, 2) >= 0 || errno == ENOENT) return;
    // The kernel refuses errors of 512 and above, and replies longer than the request allows. The
    // caller still waits for this one.
    out = (struct fuse_out_header){sizeof out, -EIO, unique};
    if (write(device, &out, sizeof out) < 0) return;
}

static void begin(const struct fuse_in_header *in, const struct fuse_init_in *asked) {
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_readahead = asked->max_readahead};
    out.flags = FUSE_BIG_WRITES | FUSE_DO_READDIRPLUS;
    out.max_background = out.congestion_threshold = 16;
    out.max_write = 128 << 10;
    out.time_gran = 1;
    answer(in->unique, 0, &out, sizeof out);
}

static void serve(const struct fuse_in_header *in, const void *body) {
    switch (in->opcode) {
    case FUSE_INIT: begin(in, body); return;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: return;
    case FUSE_DESTROY: exit(0);
    case FUSE_STATFS: answer_space(in); return;
    case FUSE_LOOKUP: answer_entry(in, node_named(body, strlen(body))); return;
    }
    struct node *node = node_of(in->nodeid);
    if (node == NULL) answer(in->unique, ESTALE, NULL, 0);
    else answer_for(in, node, body);
}

int main(int count, char **arguments) {
    if (count < 2 || count > 3) {
        fputs("usage: HostileSource MOUNTPOINT [files|blocks|all]\n", stderr);
        return 2;
    }
    if (count == 3) space = arguments[2];
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device < 0) {
        perror("/dev/fuse");
        return 1;
    }
    char words[128];
    snprintf(words, sizeof words, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (mount("hostile", arguments[1], "fuse.hostile", MS_NOSUID | MS_NODEV, words) != 0) {
        perror(arguments[1]);
        return 1;
    }
    static _Alignas(8) char buffer[1 << 20];
    for (;;) {
        // The zero behind the message ends every name.
        ssize_t length = read(device, buffer, sizeof buffer - 1);
        if (length < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;
        if (length < (ssize_t)sizeof(struct fuse_in_header)) return 0;
        buffer[length] = 0;
        serve((const void *)buffer, buffer + sizeof(struct fuse_in_header));
    }
}
