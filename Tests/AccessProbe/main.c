#include "probe.h"
#include <grp.h>
#include <sys/mman.h>
#include <sys/resource.h>

static const struct access *const tables[] = {
    reading_accesses, writing_accesses, directory_accesses, path_accesses, map_accesses, lock_accesses, ring_accesses,
};

void fail(const char *what) {
    fprintf(stderr, "access-probe: %s: %s\n", what, strerror(errno));
    exit(1);
}

const char *result_name(int result) {
    switch (result) {
    case DONE: return "OK";
    case BUS: return "SIGBUS";
    case SKIPPED: return "SKIP";
    case WRONG: return "WRONG";
    case KILLED: return "KILLED";
    default: break;
    }
    const char *name = strerrorname_np(result);
    return name ? name : "UNKNOWN";
}

static void report(const struct access *a, int result) {
    printf("{\"held\":\"%s\",\"kind\":\"%s\",\"errno\":\"%s\",\"after\":\"%s\",\"change\":%s}\n", a->held, a->kind,
           result_name(result), a->after, a->change ? "true" : "false");
}

static void try_everything(struct probe *p) {
    p->round++;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct access *a = tables[t]; a->kind; a++) report(a, a->attempt(p));
}

// Closes everything. close(2) never fails, even after a refused access.
static void close_everything(struct probe *p) {
    const struct {
        const char *name;
        int fd;
    } held[] = {
        {"fd-read", p->read_fd}, {"fd-write", p->write_fd}, {"fd-rdwr", p->rdwr_fd}, {"fd-append", p->append_fd},
        {"fd-dup", p->dup_fd}, {"fd-passed", p->passed_fd}, {"fd-target", p->target_fd}, {"o_path", p->path_fd},
        {"o_path-directory", p->path_dir_fd}, {"o_path-link", p->link_fd}, {"dirfd", p->dir_fd}, {"dirfd-listed", p->list_fd},
        {"fd-unlinked", p->unlinked_fd}, {"dirfd-unlinked", p->unlinked_dir_fd}, {"fd-flock", p->flock_fd},
        {"fd-posix-lock", p->posix_fd}, {"fd-ofd-lock", p->ofd_fd},
    };
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        struct access a = {held[i].name, "close-at-the-end", AFTER_WORKS, false, NULL};
        report(&a, RESULT(close(held[i].fd)));
    }
    struct access a = {"map-write-touched", "munmap", AFTER_WORKS, false, NULL};
    report(&a, p->map_write ? RESULT(munmap(p->map_write, FILE_SIZE)) : DONE);
}

static void become(long uid, long gid) {
    if (gid >= 0) {
        gid_t group = (gid_t)gid;
        if (setgroups(1, &group) || setresgid(group, group, group)) fail("--gid");
    }
    if (uid >= 0 && setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid)) fail("--uid");
}

static int usage(void) {
    fputs("usage: access-probe [--cold] [--uid N] [--gid N] run DIR | setup DIR [UID GID] | load DIR [dying] | lock FILE KIND try|wait\n"
          "       | dirty FILE | peek FILE | swap A B | connect SOCKET | seekdir DIR | stuck FILE | refused FILE | late OPERATION PATH [THREADS]\n"
          "       | again FILE read|populate\n"
          "       | document FILE... | call NAME ARGUMENT...\n"
          "run holds handles below DIR (made by setup), prints “ready”, and tries every access for each line it reads; “close” lets everything go.\n",
          stderr);
    return 2;
}

int main(int count, char **arguments) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    static struct probe probe;
    long uid = -1, gid = -1;
    int at = 1;
    for (; at < count && strncmp(arguments[at], "--", 2) == 0; at++) {
        if (!strcmp(arguments[at], "--cold")) probe.cold = true;
        else if (!strcmp(arguments[at], "--uid") && at + 1 < count) uid = atol(arguments[++at]);
        else if (!strcmp(arguments[at], "--gid") && at + 1 < count) gid = atol(arguments[++at]);
        else return usage();
    }
    become(uid, gid);
    char **rest = arguments + at;
    int left = count - at;
    if (left == 1 && !strcmp(rest[0], "text-child")) return text_child();
    if (left == 1 && !strcmp(rest[0], "exit")) return 0;
    if (left < 2) return usage();
    if (!strcmp(rest[0], "setup"))
        return set_up(rest[1], left > 2 ? (uid_t)atol(rest[2]) : geteuid(), left > 3 ? (gid_t)atol(rest[3]) : getegid());
    if (!strcmp(rest[0], "load")) return run_load(rest[1], left == 3 && !strcmp(rest[2], "dying"));
    if (!strcmp(rest[0], "lock") && left == 4) return run_lock(left - 1, rest + 1);
    if (!strcmp(rest[0], "ranges") && left == 3) return run_ranges(rest[1], rest[2]);
    if (!strcmp(rest[0], "document")) return run_document(left - 1, rest + 1);
    if (!strcmp(rest[0], "call")) return run_call(left - 1, rest + 1);
    if (!strcmp(rest[0], "dirty")) return run_dirty(rest[1]);
    if (!strcmp(rest[0], "peek")) return run_peek(rest[1]);
    if (!strcmp(rest[0], "swap") && left == 3) return run_swap(rest[1], rest[2]);
    if (!strcmp(rest[0], "connect")) return run_connect(rest[1]);
    if (!strcmp(rest[0], "seekdir")) return run_seekdir(rest[1]);
    if (!strcmp(rest[0], "late") && left >= 3) return run_late(rest[1], rest[2], left > 3 ? atoi(rest[3]) : 1);
    if (!strcmp(rest[0], "again") && left == 3) return run_again(rest[1], rest[2]);
    if (!strcmp(rest[0], "stuck")) return run_stuck(rest[1]);
    if (!strcmp(rest[0], "refused")) return run_refused(rest[1]);
    if (strcmp(rest[0], "run")) return usage();

    probe.dir = rest[1];
    catch_bus();
    hold(&probe);
    puts("ready");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "close", 5)) try_everything(&probe);
        else close_everything(&probe);
        puts("done");
        fflush(stdout);
    }
    return 0;
}
