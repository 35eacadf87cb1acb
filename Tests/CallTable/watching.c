// The events that inotify(7) reports for each change: of a directory, of two files in it, of a
// directory to move things to. One line a change.
#include "table.h"
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/xattr.h>

static const char *const watched[] = {"i", "i/f", "i/g", "i/d", "j"};

static void write_and_cut(void) {
    int fd = open("i/f", O_RDWR | O_CLOEXEC);
    char byte;
    (void)!write(fd, "x", 1), (void)!read(fd, &byte, 1), (void)!ftruncate(fd, 1), (void)!fchmod(fd, 0600);
    close(fd);
}
static void create(void) { close(open("i/n", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)); }
static void remove_open(void) {
    int fd = open("i/f", O_RDONLY | O_CLOEXEC);
    unlink("i/f");
    close(fd);
}
static void remove_it(void) { unlink("i/f"); }
static void remove_directory(void) { rmdir("i/d"); }
static void rename_it(void) { (void)!rename("i/f", "i/h"); }
static void rename_over(void) { (void)!rename("i/f", "i/g"); }
static void rename_away(void) { (void)!rename("i/f", "j/f"); }
static void rename_directory(void) { (void)!rename("i/d", "j/d"); }
static void exchange(void) { (void)!renameat2(AT_FDCWD, "i/f", AT_FDCWD, "i/g", RENAME_EXCHANGE); }
static void link_it(void) { (void)!link("i/f", "j/l"); }
static void link_and_remove(void) { (void)!link("i/f", "j/l"), unlink("i/f"), unlink("j/l"); }
static void subdirectory(void) { (void)!mkdir("i/m", 0700); }
static void symbolic(void) { (void)!symlink("x", "i/s"); }
static void special(void) { (void)!mkfifo("i/p", 0600); }
static void mode(void) { (void)!chmod("i/f", 0600); }
static void owner(void) { (void)!chown("i/f", 1, 1); }
static void times(void) { (void)!utimensat(AT_FDCWD, "i/f", NULL, 0); }
static void attribute(void) { (void)!setxattr("i/f", "user.t", "v", 1, 0), (void)!removexattr("i/f", "user.t"); }
static void cut(void) { (void)!truncate("i/f", 2); }
static void cut_open(void) { close(open("i/f", O_WRONLY | O_TRUNC | O_CLOEXEC)); }
static void copy(void) {
    int from = open("i/f", O_RDONLY | O_CLOEXEC), to = open("i/g", O_WRONLY | O_CLOEXEC);
    (void)!copy_file_range(from, NULL, to, NULL, 3, 0), (void)!sendfile(to, from, NULL, 2);
    close(from), close(to);
}
static void allocate(void) {
    int fd = open("i/f", O_RDWR | O_CLOEXEC);
    (void)!fallocate(fd, 0, 0, 100), (void)!fallocate(fd, 3, 0, 2);
    close(fd);
}
static void refused(void) { (void)!mkdir("i/f", 0700), (void)!rmdir("i/f"), (void)!unlink("i/d"), (void)!link("i/f", "i/g"), unlink("i/none"); }

static const struct { const char *name; void (*run)(void); } changes[] = {
    {"write", write_and_cut}, {"create", create}, {"unlink while it is open", remove_open}, {"unlink", remove_it}, {"rmdir", remove_directory},
    {"rename", rename_it}, {"rename over", rename_over}, {"rename away", rename_away}, {"rename of a directory", rename_directory},
    {"RENAME_EXCHANGE", exchange}, {"link", link_it}, {"link, unlink both", link_and_remove}, {"mkdir", subdirectory}, {"symlink", symbolic},
    {"mkfifo", special}, {"chmod", mode}, {"chown", owner}, {"utimensat", times}, {"setxattr, removexattr", attribute}, {"truncate", cut},
    {"open O_TRUNC", cut_open}, {"copy_file_range, sendfile", copy}, {"fallocate", allocate}, {"what is refused", refused},
};

void print_watching(void) {
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        if (mkdir("i", 0755) || mknod("i/f", S_IFREG | 0644, 0) || mknod("i/g", S_IFREG | 0644, 0) || mkdir("i/d", 0755) || mkdir("j", 0755)) fail("i");
        int file = open("i/f", O_WRONLY | O_CLOEXEC);
        if (file < 0 || write(file, "12345", 5) != 5 || close(file)) fail("i/f");
        int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), watches[sizeof watched / sizeof *watched];
        for (size_t w = 0; w < sizeof watched / sizeof *watched; w++)
            if ((watches[w] = inotify_add_watch(fd, watched[w], IN_ALL_EVENTS)) < 0) fail(watched[w]);
        changes[i].run();
        printf("watched %s:", changes[i].name);
        _Alignas(struct inotify_event) char events[16384];
        ssize_t count = read(fd, events, sizeof events);
        for (char *at = events; at < events + count;) {
            const struct inotify_event *event = (const struct inotify_event *)at;
            size_t w = 0;
            while (w + 1 < sizeof watched / sizeof *watched && watches[w] != event->wd) w++;
            printf(" %s %x %s%s;", watched[w], event->mask, event->len ? event->name : "-", event->cookie ? " (moved)" : "");
            at += sizeof *event + event->len;
        }
        printf("\n");
        close(fd);
        clear_tree();
    }
}
