// The calls for which a mount promises another result than the native directory, and the reasons. A native run takes
// the result of such a call from here and does not make the call, so that both runs go on from the same state.
#include "parity.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

static bool begins(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

// The daemon would set them with rights that its callers lack (CONTRACT.md, "What a mount shows").
static bool is_reserved(const char *attribute) { return begins(attribute, "security.") || begins(attribute, "trusted."); }
bool contract_shows(const char *attribute) { return !is_reserved(attribute); }

// Only if the call would reach the attribute, because a name that leads nowhere is a separate
// error.
static bool leads_somewhere(char call, const char *target) {
    struct stat status;
    int directory;
    if (call == 'f') return fstat(slot(target), &status) == 0 && !(fcntl(slot(target), F_GETFL) & O_PATH);
    const char *path = place(target, &directory);
    return fstatat(AT_FDCWD, path, &status, call == 'l' ? AT_SYMLINK_NOFOLLOW : 0) == 0;
}

int contract_says(const char *name, char **a) {
    const char *bare = name[0] == 'f' || name[0] == 'l' ? name + 1 : name;
    bool is_changing = strcmp(bare, "setx") == 0 || strcmp(bare, "remx") == 0;
    // A value that is too long for any filesystem fails first, with its own error.
    if (strcmp(bare, "setx") == 0 && strncmp(a[2], "x70000*", 7) == 0) return 0;
    if ((is_changing || strcmp(bare, "getx") == 0) && is_reserved(a[1]) && leads_somewhere(name[0], a[0])) return is_changing ? EPERM : ENODATA;
    return 0;
}
