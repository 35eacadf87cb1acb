// Listings by the raw call: their entries and the positions at which they can continue.
#include "parity.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENTRIES = 4096 };
struct entry {
    char name[264];
    ino_t inode;
    off_t next;
    unsigned char type;
};
static struct entry entries[ENTRIES];

// Reads on from the descriptor's position. Returns the number of entries or -1.
static long read_entries(int fd, size_t buffer, long limit) {
    long count = 0;
    while (count < limit) {
        ssize_t size = syscall(SYS_getdents64, fd, self.data, buffer);
        if (size < 0) return -1;
        if (size == 0) break;
        for (ssize_t at = 0; at < size && count < ENTRIES;) {
            struct dirent64 *raw = (struct dirent64 *)(self.data + at);
            struct entry *entry = &entries[count++];
            snprintf(entry->name, sizeof entry->name, "%s", raw->d_name);
            entry->inode = raw->d_ino;
            entry->next = raw->d_off;
            entry->type = raw->d_type;
            at += raw->d_reclen;
        }
        if (count == ENTRIES) break;
    }
    return count;
}

static int compare(const void *a, const void *b) { return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name); }

// Every name with its type, and whether its inode number equals that of stat(2). `..` is not compared: the kernel keeps
// the listing of a directory that is moved (fs/fuse/readdir.c), with the number of its former parent.
static void call_list(char **a) {
    int fd = slot(a[0]);
    long count = lseek(fd, 0, SEEK_SET) < 0 ? -1 : read_entries(fd, (size_t)number(a[1]), ENTRIES);
    if (count < 0) {
        say_result(-1);
        return;
    }
    // At the end of a directory some filesystems give other errors for other calls.
    lseek(fd, 0, SEEK_SET);
    qsort(entries, (size_t)count, sizeof entries[0], compare);
    say("%ld", count);
    for (long i = 0; i < count; i++) {
        struct stat status;
        const char *agrees = fstatat(fd, entries[i].name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0 ? strerrorname_np(errno)
                             : strcmp(entries[i].name, "..") == 0 || status.st_ino == entries[i].inode                                              ? "="
                                                                                                              : "other";
        say("%.20s:%d%s", entries[i].name, entries[i].type, agrees);
    }
}

// A position from a listing leads back to its entry, from any other position.
static void call_positions(char **a) {
    static struct entry all[ENTRIES];
    int fd = slot(a[0]);
    long count = lseek(fd, 0, SEEK_SET) < 0 ? -1 : read_entries(fd, 400, ENTRIES), wrong = 0;
    if (count < 0) {
        say_result(-1);
        return;
    }
    memcpy(all, entries, (size_t)count * sizeof all[0]);
    for (long at = number(a[1]) % (count + 1), tries = 0; tries < 4 && count > 0; tries++, at = (at * 7 + 3) % count) {
        if (lseek(fd, at == 0 ? 0 : all[at - 1].next, SEEK_SET) < 0) wrong++;
        if (read_entries(fd, 400, 1) < 1) wrong += at < count;
        else if (at == count || strcmp(entries[0].name, all[at].name) != 0) wrong++;
    }
    say("%ld entries, %ld wrong", count, wrong);
}

// Lists some entries, then runs other calls of the script, then lists the rest.
static void call_listsome(char **a) {
    long count = read_entries(slot(a[0]), 200, 1);
    if (count < 0) say_result(-1); else say("%s", count == 0 ? "none" : "some");
}

const struct call calls_directories[] = {
    {"list", 2, call_list}, {"positions", 2, call_positions}, {"listsome", 1, call_listsome}, {NULL, 0, NULL},
};
