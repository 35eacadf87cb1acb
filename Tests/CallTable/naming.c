#include "table.h"
#include <stddef.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

static int make_directory(const char *path) { return TRY(mkdir(path, 0777)); }
static int make_sticky(const char *path) { return TRY(mkdir(path, 03777)); }
static int remove_directory(const char *path) { return TRY(rmdir(path)); }
static int remove_name(const char *path) { return TRY(unlink(path)); }
static int make_fifo(const char *path) { return TRY(mknod(path, S_IFIFO | 0666, 0)); }
static int make_file(const char *path) { return TRY(mknod(path, S_IFREG | 0666, 0)); }
static int make_socket(const char *path) { return TRY(mknod(path, S_IFSOCK | 0666, 0)); }
static int make_device(const char *path) { return TRY(mknod(path, S_IFCHR | 0666, makedev(1, 3))); }
static int make_nothing(const char *path) { return TRY(mknod(path, S_IFDIR | 0777, 0)); }
static int make_link(const char *path) { return TRY(symlink("any text/../at all", path)); }
static int make_empty_link(const char *path) { return TRY(symlink("", path)); }
static int link_text(const char *path) { return TRY(symlink(path, "open/text")); }
static int link_to_it(const char *path) { return TRY(link(path, "open/hard")); }
static int link_followed(const char *path) { return TRY(linkat(AT_FDCWD, path, AT_FDCWD, "open/hard", AT_SYMLINK_FOLLOW)); }
static int link_at_it(const char *path) { return TRY(link("target", path)); }
static int link_directory(const char *path) { return TRY(link("empty", path)); }
static int rename_it(const char *path) { return TRY(rename(path, "open/renamed")); }
static int rename_onto_file(const char *path) { return TRY(rename(path, "open/inner")); }
static int rename_onto_directory(const char *path) { return TRY(rename(path, "mine/d")); }
static int rename_into_itself(const char *path) {
    char below[5000];
    if ((uintptr_t)path < 4096) return EFAULT;
    snprintf(below, sizeof below, "%s/below", path);
    return TRY(rename(path, below));
}
static int file_to_it(const char *path) { return TRY(rename("target", path)); }
static int own_to_it(const char *path) { return TRY(rename("mine/a", path)); }
static int directory_to_it(const char *path) { return TRY(rename("empty", path)); }
static int full_to_it(const char *path) { return TRY(rename("full", path)); }
static int no_replace(const char *path) { return TRY(renameat2(AT_FDCWD, "target", AT_FDCWD, path, RENAME_NOREPLACE)); }
static int exchange(const char *path) { return TRY(renameat2(AT_FDCWD, "target", AT_FDCWD, path, RENAME_EXCHANGE)); }
static int exchange_directory(const char *path) { return TRY(renameat2(AT_FDCWD, "full", AT_FDCWD, path, RENAME_EXCHANGE)); }
static int both_flags(const char *path) { return TRY(renameat2(AT_FDCWD, "target", AT_FDCWD, path, RENAME_EXCHANGE | RENAME_NOREPLACE)); }
static int bind_socket(const char *path) {
    if ((uintptr_t)path < 4096) return EFAULT;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof address.sun_path) return ENAMETOOLONG;
    memcpy(address.sun_path, path, length + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int result = TRY(bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1)));
    close(fd);
    return result;
}

const struct call naming_calls[] = {
    {"mkdir", make_directory, true}, {"mkdir mode 3777", make_sticky, true}, {"rmdir", remove_directory, true},
    {"unlink", remove_name, true},
    {"mknod FIFO", make_fifo, true}, {"mknod file", make_file, true}, {"mknod socket", make_socket, true},
    {"mknod device", make_device, true},
    {"mknod directory", make_nothing, true}, {"symlink", make_link, true}, {"symlink of nothing", make_empty_link, true},
    {"symlink with this text", link_text, true},
    {"link to it", link_to_it, true}, {"linkat AT_SYMLINK_FOLLOW", link_followed, true}, {"link at it", link_at_it, true},
    {"link of a directory", link_directory, true},
    {"rename it", rename_it, true}, {"rename it onto a file", rename_onto_file, true},
    {"rename it onto a directory", rename_onto_directory, true},
    {"rename it into itself", rename_into_itself, true}, {"rename a file to it", file_to_it, true},
    {"rename an own file to it", own_to_it, true},
    {"rename a directory to it", directory_to_it, true}, {"rename a full directory to it", full_to_it, true},
    {"RENAME_NOREPLACE", no_replace, true},
    {"RENAME_EXCHANGE", exchange, true}, {"RENAME_EXCHANGE of a directory", exchange_directory, true},
    {"RENAME_EXCHANGE RENAME_NOREPLACE", both_flags, true},
    {"bind", bind_socket, true}, {NULL, NULL, false},
};
