#include "hung.h"
#include <CGrantSystem.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *control;

void set_control_file(const char *path) { control = path; }

enum { GOES_ON = 0, HANGS = -1 };

// What the control file says of an operation: GOES_ON, HANGS, or the errno it fails with.
static int said(const char *operation) {
    int fd = open(control, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return GOES_ON;
    char text[512] = "";
    ssize_t count = read(fd, text, sizeof text - 1);
    close(fd);
    if (count <= 0) return count == 0 ? HANGS : GOES_ON;
    text[count] = 0;
    size_t length = strlen(operation);
    char *place = NULL;
    for (char *word = strtok_r(text, " \n", &place); word; word = strtok_r(NULL, " \n", &place)) {
        if (strncmp(word, operation, length)) continue;
        if (!word[length]) return HANGS;
        if (word[length] == '=') return atoi(word + length + 1);
    }
    return GOES_ON;
}

bool squashes;

// For this thread alone. The groups first: with another fsuid it may no longer.
static void act_as_caller(void) {
    enum { NOBODY = 65534 };
    struct fuse_context *context = fuse_get_context();
    gid_t groups[64];
    int count = context->uid == 0 ? 0 : fuse_getgroups(64, groups);
    clinux_thread_setfsuid(0);
    clinux_thread_setgroups(groups, count < 0 ? 0 : (size_t)count);
    clinux_thread_setfsgid(context->uid == 0 ? NOBODY : context->gid);
    clinux_thread_setfsuid(context->uid == 0 ? NOBODY : context->uid);
}

int pass(const char *operation) {
    int what;
    while ((what = said(operation)) == HANGS) usleep(5000);
    if (squashes) act_as_caller();
    return what;
}
