// The rights that the bits of a mode give to the owner, to the group and to others. Each mode has one
// line for a file and one for a directory.
#include "table.h"
#include <dirent.h>

static void opened(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC);
    printf(" %s", fd < 0 ? strerrorname_np(errno) : "OK");
    if (fd >= 0) close(fd);
}

static void print_file(mode_t mode) {
    opened("subject", O_RDONLY);
    opened("subject", O_WRONLY);
    opened("subject", O_RDWR);
    opened("subject", O_WRONLY | O_APPEND);
    opened("subject", O_RDONLY | O_TRUNC);
    opened("subject", O_PATH);
    printf(" access %d%d%d", access("subject", R_OK) == 0, access("subject", W_OK) == 0, access("subject", X_OK) == 0);
    int changed = TRY(chmod("subject", mode ^ 02000));
    struct stat status;
    if (stat("subject", &status)) fail("stat");
    printf(" chmod %s %o", changed ? strerrorname_np(changed) : "OK", status.st_mode);
    struct timespec both[] = {{1, 0}, {2, 0}};
    int now = TRY(utimensat(AT_FDCWD, "subject", NULL, 0)), given = TRY(utimensat(AT_FDCWD, "subject", both, 0));
    printf(" times %d %d\n", now, given);
}

static void print_directory(void) {
    DIR *stream = opendir("subject");
    printf(" list %s", stream ? "OK" : strerrorname_np(errno));
    if (stream) closedir(stream);
    struct stat status;
    printf(" stat %d", TRY(stat("subject/in", &status)));
    opened("subject/in", O_RDONLY);
    printf(" create %d", TRY(mknod("subject/new", S_IFREG | 0600, 0)));
    printf(" rename %d", TRY(rename("subject/in", "subject/moved")));
    printf(" unlink %d %d\n", TRY(unlink("subject/in")), TRY(unlink("subject/moved")));
}

void print_modes(void (*become_one)(int who), void (*return_to_root)(void), int count) {
    umask(0);
    for (int owner = 0; owner < 2; owner++)
        for (int who = 0; who < count; who++)
            for (int directory = 0; directory < 2; directory++)
                for (mode_t bits = 0; bits < 8; bits++)
                    for (int place = 0; place < 9; place += 3) {
                        mode_t mode = bits << place;
                        if (directory ? mkdir("subject", 0700) : mknod("subject", S_IFREG | 0600, 0)) fail("subject");
                        if (directory && mknod("subject/in", S_IFREG | 0666, 0)) fail("subject/in");
                        if (chown("subject", owner ? USER : 0, GROUP) || chmod("subject", mode)) fail("chmod");
                        become_one(who);
                        printf("mode %04o of %s, user %d:", mode, owner ? "user" : "root", who);
                        if (directory) print_directory(); else print_file(mode);
                        return_to_root();
                        if (directory) unlink("subject/in"), unlink("subject/moved"), unlink("subject/new");
                        if (directory ? rmdir("subject") : unlink("subject")) fail("removing");
                    }
}
