// The rights of each user to rename, remove, own and mark objects: sticky and set-gid directories,
// owners, groups, set-id bits. One line a case.
#include "table.h"
#include <grp.h>

enum { OTHER = 1234 };

static void act_as(uid_t user, bool is_member) {
    gid_t group = GROUP;
    if (setgroups(is_member, &group) || setresgid(user, user, 0) || setresuid(user, user, 0)) fail("setresuid");
}
static void act_as_root(void) {
    if (setresuid(0, 0, 0) || setresgid(0, 0, 0) || setgroups(0, NULL)) fail("setresuid");
}
#define AS(user, is_member, call) (act_as(user, is_member), result = TRY(call), act_as_root(), result)
static int result;

static void make(const char *path, char kind, uid_t owner) {
    int made = kind == 'd' ? mkdir(path, 0755) : kind == 'l' ? symlink("x", path) : mknod(path, S_IFREG | 0644, 0);
    if (made || lchown(path, owner, owner)) fail(path);
}
static void make_directory(const char *path, mode_t mode, uid_t owner, gid_t group) {
    if (mkdir(path, 0700) || chown(path, owner, group) || chmod(path, mode)) fail(path);
}
static int removed(const char *path, char kind) { return kind == 'd' ? rmdir(path) : unlink(path); }

static void print_sticky(void) {
    static const uid_t owners[] = {0, USER, OTHER};
    for (int sticky = 0; sticky < 2; sticky++)
        for (int of = 0; of < 3; of++)
            for (int owner = 1; owner < 3; owner++)
                for (const char *kind = "fdl"; *kind; kind++) {
                    make_directory("s", sticky ? 01777 : 0777, owners[of], 0);
                    make_directory("t", 0777, 0, 0);
                    make("s/a", *kind, owners[owner]);
                    make("t/b", *kind, USER);
                    printf("sticky %d of %u, %c of %u: over %d", sticky, owners[of], *kind, owners[owner], AS(USER, false, rename("t/b", "s/a")));
                    printf(" away %d", AS(USER, false, rename("s/a", "t/c")));
                    printf(" exchanged %d", AS(USER, false, renameat2(AT_FDCWD, "t/c", AT_FDCWD, "s/a", RENAME_EXCHANGE)));
                    printf(" removed %d\n", AS(USER, false, removed("s/a", *kind)));
                    clear_tree();
                }
    // A directory that moves to another parent gets another `..`, which needs write permission for
    // the directory.
    for (int owner = 1; owner < 3; owner++)
        for (int mode = 0; mode < 3; mode++) {
            make_directory("s", 0777, 0, 0);
            make_directory("t", 0777, 0, 0);
            make_directory("s/d", (const mode_t[]){0755, 0777, 0555}[mode], owners[owner], 0);
            printf("moved %d of %u: %d", mode, owners[owner], AS(USER, false, rename("s/d", "t/d")));
            printf(" %d\n", AS(USER, false, rename("s/d", "s/e")));
            clear_tree();
        }
}

static void print_ownership(void) {
    static const uid_t users[] = {(uid_t)-1, USER, OTHER}, owners[] = {USER, OTHER};
    static const gid_t groups[] = {(gid_t)-1, USER, GROUP, 0};
    static const mode_t modes[] = {0644, 06755, 02644}, wanted[] = {06777, 02755, 02666, 01666};
    struct stat status;
    for (int owner = 0; owner < 2; owner++)
        for (int group = 1; group < 4; group++)
            for (int is_member = 0; is_member < 2; is_member++) {
                printf("owned by %u:%u, member %d:", owners[owner], groups[group], is_member);
                for (int mode = 0; mode < 3; mode++)
                    for (int user = 0; user < 3; user++)
                        for (int other = 0; other < 4; other++) {
                            if (mknod("o", S_IFREG | 0600, 0) || chown("o", owners[owner], groups[group]) || chmod("o", modes[mode])) fail("o");
                            int error = AS(USER, is_member, chown("o", users[user], groups[other]));
                            if (stat("o", &status) || unlink("o")) fail("o");
                            printf(" %d:%u:%u:%o", error, status.st_uid, status.st_gid, status.st_mode & 07777);
                        }
                for (int mode = 0; mode < 4; mode++)
                    for (int directory = 0; directory < 2; directory++) {
                        if ((directory ? mkdir("o", 0700) : mknod("o", S_IFREG | 0600, 0)) || chown("o", owners[owner], groups[group])) fail("o");
                        int error = AS(USER, is_member, chmod("o", wanted[mode]));
                        if (stat("o", &status) || (directory ? rmdir("o") : unlink("o"))) fail("o");
                        printf(" chmod %d:%o", error, status.st_mode & 07777);
                    }
                printf("\n");
            }
}

static void print_made(const char *path) {
    struct stat status;
    if (lstat(path, &status)) printf(" %s", strerrorname_np(errno)); else printf(" %u:%u:%o", status.st_uid, status.st_gid, status.st_mode & 07777);
}

static void print_creation(void) {
    static const gid_t groups[] = {USER, GROUP, 0};
    for (int group = 0; group < 3; group++)
        for (int set_gid = 0; set_gid < 2; set_gid++)
            for (int is_member = 0; is_member < 2; is_member++)
                for (int mask = 0; mask < 2; mask++) {
                    make_directory("g", set_gid ? 02777 : 0777, 0, groups[group]);
                    umask(mask ? 027 : 0);
                    act_as(USER, is_member);
                    close(open("g/file", O_WRONLY | O_CREAT | O_CLOEXEC, 06777));
                    close(open("g/plain", O_WRONLY | O_CREAT | O_CLOEXEC, 02666));
                    (void)!mkdir("g/directory", 06777);
                    (void)!mknod("g/node", S_IFREG | 02777, 0);
                    (void)!mknod("g/fifo", S_IFIFO | 02777, 0);
                    (void)!symlink("x", "g/link");
                    int nameless = open("g", O_TMPFILE | O_RDWR | O_CLOEXEC, 06777);
                    char way[40];
                    snprintf(way, sizeof way, "/proc/self/fd/%d", nameless);
                    if (nameless >= 0) (void)!linkat(AT_FDCWD, way, AT_FDCWD, "g/nameless", AT_SYMLINK_FOLLOW);
                    close(nameless);
                    act_as_root();
                    umask(022);
                    printf("made in %d of %u, member %d, mask %d:", set_gid, groups[group], is_member, mask);
                    static const char *const names[] = {"file", "plain", "directory", "node", "fifo", "link", "nameless"};
                    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                        char path[40];
                        snprintf(path, sizeof path, "g/%s", names[i]);
                        print_made(path);
                    }
                    printf("\n");
                    clear_tree();
                }
}

void print_owners(void) {
    print_sticky();
    print_ownership();
    print_creation();
}
