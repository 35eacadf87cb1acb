// Extended attributes and, under their names, POSIX ACLs. Values are written in hexadecimal after
// an x. `-` is an empty value.
#include "parity.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

static size_t value_of(const char *text) {
    size_t count = 0;
    // xN*B: a value of N times the byte B, for values too long to write out.
    unsigned long repeat;
    unsigned byte;
    if (sscanf(text, "x%lu*%x", &repeat, &byte) == 2) {
        count = repeat > DATA_LIMIT ? DATA_LIMIT : repeat;
        memset(self.data, (int)byte, count);
        return count;
    }
    for (text++; text[0] != 0 && text[1] != 0 && sscanf(text, "%2x", &byte) == 1; text += 2) self.data[count++] = (char)byte;
    return count;
}

static void say_value(ssize_t count, const char *room) {
    say_result(count);
    if (count > 0 && number(room) != 0) say("%08x", hash(self.data, (size_t)count, 7));
}

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
static void say_list(ssize_t count) {
    if (count < 0) {
        say_result(-1);
        return;
    }
    char *names[256];
    size_t shown = 0;
    for (char *name = self.data; name < self.data + count && shown < 256; name += strlen(name) + 1)
        if (!self.contract || contract_shows(name)) names[shown++] = name;
    qsort(names, shown, sizeof names[0], compare);
    say("%zu", shown);
    for (size_t i = 0; i < shown; i++) say("%s", names[i]);
}

static const char *path_of(const char *text) {
    int directory;
    return place(text, &directory);
}

static void call_getx(char **a) { say_value(getxattr(path_of(a[0]), a[1], self.data, (size_t)number(a[2])), a[2]); }
static void call_lgetx(char **a) { say_value(lgetxattr(path_of(a[0]), a[1], self.data, (size_t)number(a[2])), a[2]); }
static void call_fgetx(char **a) { say_value(fgetxattr(slot(a[0]), a[1], self.data, (size_t)number(a[2])), a[2]); }
static void call_setx(char **a) {
    size_t count = value_of(a[2]);
    say_result(setxattr(path_of(a[0]), a[1], self.data, count, (int)number(a[3])));
}
static void call_lsetx(char **a) {
    size_t count = value_of(a[2]);
    say_result(lsetxattr(path_of(a[0]), a[1], self.data, count, (int)number(a[3])));
}
static void call_fsetx(char **a) {
    size_t count = value_of(a[2]);
    say_result(fsetxattr(slot(a[0]), a[1], self.data, count, (int)number(a[3])));
}
static void call_remx(char **a) { say_result(removexattr(path_of(a[0]), a[1])); }
static void call_fremx(char **a) { say_result(fremovexattr(slot(a[0]), a[1])); }
static void call_listx(char **a) { say_list(listxattr(path_of(a[0]), self.data, 65536)); }
static void call_llistx(char **a) { say_list(llistxattr(path_of(a[0]), self.data, 65536)); }
static void call_flistx(char **a) { say_list(flistxattr(slot(a[0]), self.data, 65536)); }

// Sets a file capability on the host, as an installer would: cap_net_raw=ep. Through a mount the
// next change must clear it.
static void call_hostcap(char **a) {
    static const unsigned char capability[] = {1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", self.host, path_of(a[0]));
    say_result(lsetxattr(path, "security.capability", capability, sizeof capability, 0));
    // Otherwise the kernel's cached times of the file may be a second old.
    struct statx status;
    snprintf(path, sizeof path, "%s/%s", self.directory, path_of(a[0]));
    statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &status);
}
// The attribute as the directory really shows it, without the contract. Only this call always
// differs, for tests of the tester.
static void call_islisted(char **a) { say_result(lgetxattr(path_of(a[0]), "security.capability", self.data, 64)); }

const struct call calls_xattrs[] = {
    {"getx", 3, call_getx},   {"lgetx", 3, call_lgetx}, {"fgetx", 3, call_fgetx}, {"setx", 4, call_setx},     {"lsetx", 4, call_lsetx},
    {"fsetx", 4, call_fsetx}, {"remx", 2, call_remx},   {"fremx", 2, call_fremx}, {"listx", 1, call_listx},   {"llistx", 1, call_llistx},
    {"flistx", 1, call_flistx}, {"hostcap", 1, call_hostcap}, {"islisted", 1, call_islisted}, {NULL, 0, NULL},
};
