#include "hung.h"
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static const char *control;

void set_control_file(const char *path) { control = path; }

static bool hangs(const char *operation) {
    int fd = open(control, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    char text[512] = "";
    ssize_t count = read(fd, text, sizeof text - 1);
    close(fd);
    if (count <= 0) return count == 0;
    text[count] = 0;
    char *place = NULL;
    for (char *word = strtok_r(text, " \n", &place); word; word = strtok_r(NULL, " \n", &place))
        if (!strcmp(word, operation)) return true;
    return false;
}

void pass(const char *operation) {
    while (hangs(operation)) usleep(5000);
}
