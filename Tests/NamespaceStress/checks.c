#include "stress.h"

unsigned links_of(const struct worker *w, const struct entry *e) {
    unsigned count = 0;
    for (int i = 0; i < ENTRIES; i++) count += w->entries[i].kind == FILE_ && w->entries[i].inode == e->inode;
    return count;
}

static mode_t type_of(enum kind kind) {
    return kind == FILE_ ? S_IFREG : kind == DIRECTORY ? S_IFDIR : kind == LINK ? S_IFLNK : S_IFIFO;
}

// A file's content is the number of its inode, so a name that leads to another file shows.
void check_entry(struct worker *w, const struct entry *e) {
    char name[32], text[32] = "";
    name_of(w, e, name);
    struct stat status;
    expect(w, "stat", name, fstatat(w->directories[e->directory], name, &status, AT_SYMLINK_NOFOLLOW) ? errno : 0, 0);
    if ((status.st_mode & S_IFMT) != type_of(e->kind)) fail(w, "type", name, (int)status.st_mode, (int)type_of(e->kind));
    if (e->kind == DIRECTORY) {
        // Filesystems that do not count the links of directories (btrfs) report one for each.
        struct stat above;
        int links = fstat(w->directories[e->directory], &above) == 0 && above.st_nlink == 1 ? 1 : 2;
        if ((int)status.st_nlink != links) fail(w, "links of a directory", name, (int)status.st_nlink, links);
        char child[48];
        snprintf(child, sizeof child, "%s/child", name);
        expect(w, "the file in", name, faccessat(w->directories[e->directory], child, F_OK, 0) ? errno : 0, e->has_child ? 0 : ENOENT);
    }
    if (e->kind != FILE_) return;
    if (status.st_nlink != links_of(w, e)) fail(w, "links", name, (int)status.st_nlink, (int)links_of(w, e));
    int fd = openat(w->directories[e->directory], name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(w, "open", name, errno, 0);
    if (read(fd, text, sizeof text - 1) < 0) fail(w, "read", name, errno, 0);
    close(fd);
    if (strtoul(text, NULL, 10) != e->inode) fail(w, "content", name, (int)strtoul(text, NULL, 10), (int)e->inode);
}

// Each own name must appear exactly once, with its type, and no removed name.
void check_listing(struct worker *w, int directory) {
    int fd = openat(w->directories[directory], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream) fail(w, "opendir", "", errno, 0);
    bool seen[ENTRIES] = {false};
    char prefix[16], name[32];
    int length = snprintf(prefix, sizeof prefix, "p%d-", w->id);
    errno = 0;
    for (struct dirent *listed; (listed = readdir(stream));) {
        if (strncmp(listed->d_name, prefix, (size_t)length)) continue;
        int found = -1;
        for (int i = 0; i < ENTRIES && found < 0; i++) {
            if (w->entries[i].kind == NOTHING || w->entries[i].directory != directory) continue;
            name_of(w, &w->entries[i], name);
            if (strcmp(name, listed->d_name) == 0) found = i;
        }
        if (found < 0) fail(w, "listed, though it is gone", listed->d_name, 0, 0);
        if (seen[found]) fail(w, "listed twice", listed->d_name, 0, 0);
        seen[found] = true;
        if (listed->d_type != DT_UNKNOWN && DTTOIF(listed->d_type) != (int)type_of(w->entries[found].kind))
            fail(w, "listed with another type", listed->d_name, listed->d_type, (int)w->entries[found].kind);
    }
    if (errno) fail(w, "readdir", "", errno, 0);
    closedir(stream);
    for (int i = 0; i < ENTRIES; i++)
        if (w->entries[i].kind != NOTHING && w->entries[i].directory == directory && !seen[i]) {
            name_of(w, &w->entries[i], name);
            fail(w, "not listed, though it is there", name, 0, 0);
        }
}
