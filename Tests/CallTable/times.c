// The times that each call sets, of its object and of the directory. One line a call, with a letter
// for each changed time.
#include "table.h"
#include <sys/mman.h>
#include <sys/xattr.h>
#include <time.h>

static int fd;

static void write_it(void) { (void)!pwrite(fd, "y", 1, 0); }
static void write_nothing(void) { (void)!pwrite(fd, "", 0, 0); }
static void append_it(void) { (void)!pwrite(fd, "y", 1, 100); }
static void cut_same(void) { (void)!ftruncate(fd, 8); }
static void cut_shorter(void) { (void)!ftruncate(fd, 3); }
static void truncate_zero(void) { close(open("d/f", O_WRONLY | O_TRUNC | O_CLOEXEC)); }
static void allocate(void) { (void)!posix_fallocate(fd, 0, 100); }
static void punch(void) { (void)!fallocate(fd, 3, 0, 4); }
static void map_it(void) {
    char *map = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return;
    map[0] = 'z';
    msync(map, 8, MS_SYNC);
    munmap(map, 8);
}
static void copy(void) { off_t in = 0, out = 4; (void)!copy_file_range(fd, &in, fd, &out, 2, 0); }
static void mode(void) { (void)!chmod("d/f", 0600); }
static void mode_open(void) { (void)!fchmod(fd, 0640); }
static void owner(void) { (void)!chown("d/f", 1, 1); }
static void owner_none(void) { (void)!chown("d/f", (uid_t)-1, (gid_t)-1); }
static void link_it(void) { (void)!link("d/f", "d/other"); }
static void rename_it(void) { (void)!rename("d/f", "d/g"); (void)!rename("d/g", "d/f"); }
static void rename_away(void) { (void)!rename("d/f", "away"); (void)!rename("away", "d/f"); }
static void rename_over(void) { (void)!link("d/f", "away"); (void)!rename("target", "away"); }
static void exchange(void) { (void)!renameat2(AT_FDCWD, "d/f", AT_FDCWD, "target", RENAME_EXCHANGE); }
static void attribute(void) { (void)!setxattr("d/f", "user.t", "v", 1, 0); }
static void no_attribute(void) { (void)!removexattr("d/f", "user.none"); }
static void create(void) { close(open("d/new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)); }
static void create_known(void) { close(open("d/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)); }
static void subdirectory(void) { (void)!mkdir("d/sub", 0700); }
static void symbolic(void) { (void)!symlink("x", "d/s"); }
static void special(void) { (void)!mkfifo("d/p", 0600); }
static void remove_it(void) { unlink("d/f"); }
static void remove_hard(void) { (void)!link("d/f", "hard"); unlink("d/f"); }
static void touch(void) { (void)!utimensat(AT_FDCWD, "d/f", NULL, 0); }
static void neither(void) { struct timespec both[] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}}; (void)!futimens(fd, both); }
static void refused(void) { (void)!mkdir("d/f", 0700); (void)!rmdir("d"); (void)!link("d/f", "d/f"); }
static void look(void) { struct stat status; (void)!stat("d/f", &status); close(open("d/f", O_RDONLY | O_CLOEXEC)); }

// truncate(2) to the same size is missing: with write-back FUSE changes times only if the size
// changes (docs/conformance.md).
static const struct { const char *name; void (*run)(void); } calls[] = {
    {"write", write_it}, {"write of nothing", write_nothing}, {"write behind the end", append_it},
    {"ftruncate to the same size", cut_same},
    {"ftruncate", cut_shorter}, {"open O_TRUNC", truncate_zero}, {"fallocate", allocate},
    {"punch", punch}, {"a store to a shared mapping", map_it}, {"copy_file_range", copy}, {"chmod", mode}, {"fchmod", mode_open},
    {"chown", owner},
    {"chown of nothing", owner_none}, {"link", link_it}, {"rename there and back", rename_it}, {"rename away and back", rename_away},
    {"link, renamed over", rename_over}, {"RENAME_EXCHANGE", exchange}, {"setxattr", attribute}, {"removexattr of none", no_attribute},
    {"create", create}, {"open O_CREAT of what is there", create_known}, {"mkdir", subdirectory}, {"symlink", symbolic},
    {"mkfifo", special},
    {"unlink while it is open", remove_it}, {"unlink of one of two", remove_hard}, {"utimensat", touch},
    {"futimens OMIT, OMIT", neither},
    {"what is refused", refused}, {"stat, open, close", look},
};

static bool later(struct timespec a, struct timespec b) { return a.tv_sec != b.tv_sec || a.tv_nsec != b.tv_nsec; }

void print_times(void) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        make_tree();
        if (mkdir("d", 0755) || (fd = open("d/f", O_RDWR | O_CREAT | O_CLOEXEC, 0644)) < 0) fail("d/f");
        if (write(fd, "12345678", 8) != 8 || fsync(fd)) fail("d/f");
        struct stat before[2], after[2];
        if (fstat(fd, &before[0]) || stat("d", &before[1])) fail("stat");
        // Longer than one tick of the clock that filesystems use.
        nanosleep(&(struct timespec){0, 12000000}, NULL);
        calls[i].run();
        if (fstat(fd, &after[0]) || stat("d", &after[1])) fail("stat");
        printf("times: %s: file %s%s, directory %s%s\n", calls[i].name, later(before[0].st_mtim, after[0].st_mtim) ? "m" : "-",
            later(before[0].st_ctim, after[0].st_ctim) ? "c" : "-", later(before[1].st_mtim, after[1].st_mtim) ? "m" : "-",
            later(before[1].st_ctim, after[1].st_ctim) ? "c" : "-");
        close(fd);
        clear_tree();
    }
}
