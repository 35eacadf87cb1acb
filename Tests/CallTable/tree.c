#include "table.h"
#include <dirent.h>
#include <ftw.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

const char *const situations[] = {
    "file", "private", "mine/a", "owned", "setid", "empty", "full", "full/inner", "closed", "closed/inner", "closed/missing", "open/inner",
    "open/new", "sticky/root", "sticky/mine", "sticky/new", "sticky", "setgid/new", "ro/inner", "ro/new", "link", "link/", "dangling",
    "dangling/", "loop", "loop/x", "dirlink", "dirlink/", "dirlink/inner", "fifo", "fifo/x", "socket", "null", "missing", "missing/", "missing/x",
    "file/", "file/x", "full/.", "full/..", "empty/.", "empty/", ".", "..", "(nothing)", "(name of 255)", "(name of 256)", "(path of 4095)", "(path of 4096)",
    "(bad address)", "(not UTF-8)", "(new line)", NULL,
};

static char name255[256], name256[257], path4095[4096], path4096[4097];

const char *path_of(const char *situation) {
    if (situation[0] != '(') return situation;
    memset(name255, 'n', 255);
    memset(name256, 'n', 256);
    for (int i = 0; i < 4096; i++) path4096[i] = i % 2 ? '/' : '.';
    memcpy(path4095, path4096 + 1, 4095);
    memcpy(path4095, "./", 2);
    path4095[4094] = 'x';
    path4096[4095] = 'x';
    switch (situation[1]) {
    case 'b': return (const char *)1;
    case 'p': return situation[12] == '5' ? path4095 : path4096;
    }
    if (strcmp(situation, "(nothing)") == 0) return "";
    if (strcmp(situation, "(name of 255)") == 0) return name255;
    if (strcmp(situation, "(name of 256)") == 0) return name256;
    return strcmp(situation, "(new line)") == 0 ? "new\nline" : "\xff\xfe\x80";
}

void fail(const char *what) {
    perror(what);
    exit(2);
}

static void make_file(const char *path, mode_t mode, uid_t owner, gid_t group) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, "content\n", 8) != 8 || fchown(fd, owner, group) || fchmod(fd, mode) || close(fd)) fail(path);
}

static void make_directory(const char *path, mode_t mode, uid_t owner, gid_t group) {
    if (mkdir(path, 0700) || chown(path, owner, group) || chmod(path, mode)) fail(path);
}

void make_tree(void) {
    umask(022);
    // These attributes remain when the tree is cleared.
    if (chown(".", 0, 0) || chmod(".", 0777) || chown("..", 0, 0) || chmod("..", 0755)) fail(".");
    removexattr(".", "user.new"), removexattr("..", "user.new");
    make_file("file", 0644, 0, 0);
    make_file("private", 0600, 0, 0);
    make_file("owned", 0644, USER, USER);
    make_file("setid", 06777, USER, USER);
    make_file("target", 0666, 0, 0);
    make_directory("empty", 0755, 0, 0);
    make_directory("full", 0755, 0, 0);
    make_file("full/inner", 0644, 0, 0);
    make_directory("closed", 0700, 0, 0);
    make_file("closed/inner", 0666, 0, 0);
    make_directory("open", 0777, 0, 0);
    make_file("open/inner", 0640, 0, GROUP);
    make_directory("sticky", 01777, 0, 0);
    make_file("sticky/root", 0666, 0, 0);
    make_file("sticky/mine", 0666, USER, USER);
    make_directory("setgid", 02777, 0, GROUP);
    make_directory("ro", 0555, USER, USER);
    make_file("ro/inner", 0666, USER, USER);
    make_directory("mine", 0700, USER, USER);
    make_file("mine/a", 0600, USER, USER);
    make_directory("mine/d", 0700, USER, USER);
    if (symlink("file", "link") || symlink("nowhere", "dangling") || symlink("loop", "loop") || symlink("full", "dirlink")) fail("symlink");
    if (mkfifo("fifo", 0600) || chmod("fifo", 0666) || mknod("null", S_IFCHR | 0666, makedev(1, 3)) || chmod("null", 0666)) fail("mknod");
    if (mknod("socket", S_IFSOCK | 0666, 0) || chmod("socket", 0666)) fail("mknod");
    if (setxattr("owned", "user.a", "value", 5, 0)) fail("setxattr");
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status;
    if (place->level == 0) return 0;
    return (kind == FTW_DP ? rmdir(path) : unlink(path)) ? -1 : 0;
}

void clear_tree(void) {
    if (nftw(".", remove_one, 16, FTW_DEPTH | FTW_PHYS)) fail("clearing the tree");
}

static uint64_t sum;

static void mix(uint64_t *hash, const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) *hash = (*hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3u;
}

static int add_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)kind;
    if (place->level == 0) return 0;
    uint64_t hash = 0xCBF29CE484222325u;
    mix(&hash, path, strlen(path));
    uint64_t facts[] = {status->st_mode, status->st_uid, status->st_gid, status->st_nlink,
        S_ISDIR(status->st_mode) ? 0 : (uint64_t)status->st_size, status->st_rdev};
    mix(&hash, facts, sizeof facts);
    char target[256];
    ssize_t length = S_ISLNK(status->st_mode) ? readlink(path, target, sizeof target) : 0;
    if (length > 0) mix(&hash, target, (size_t)length);
    sum += hash;  // the order of a listing is not promised
    return 0;
}

// Names, types, modes, owners, links and sizes of all objects, as one number.
uint64_t digest(void) {
    sum = 0;
    if (nftw(".", add_one, 16, FTW_PHYS)) fail("looking at the tree");
    return sum;
}
