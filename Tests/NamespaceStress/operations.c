#include "stress.h"

void name_of(const struct worker *w, const struct entry *e, char name[static 32]) { snprintf(name, 32, "p%d-%u", w->id, e->number); }

void expect(struct worker *w, const char *what, const char *name, int result, int wanted) {
    if (result != wanted) fail(w, what, name, result, wanted);
}

#define TRY(call) ((call) < 0 ? errno : 0)

static struct entry *find(struct worker *w, bool (*is)(const struct entry *)) {
    unsigned start = (unsigned)draw(w, ENTRIES);
    for (unsigned i = 0; i < ENTRIES; i++) {
        struct entry *e = &w->entries[(start + i) % ENTRIES];
        if (is(e)) return e;
    }
    return NULL;
}
static bool is_free(const struct entry *e) { return e->kind == NOTHING; }
static bool is_any(const struct entry *e) { return e->kind != NOTHING; }
static bool is_file(const struct entry *e) { return e->kind == FILE_; }
static bool is_directory(const struct entry *e) { return e->kind == DIRECTORY; }

static struct entry fresh(struct worker *w, enum kind kind) {
    return (struct entry){.kind = kind, .directory = (int)draw(w, DIRECTORIES), .number = w->next_number++};
}

static void make(struct worker *w) {
    struct entry *place = find(w, is_free);
    if (!place) return;
    struct entry made = fresh(w, FILE_ + (enum kind)draw(w, 4));
    int at = w->directories[made.directory];
    char name[32], text[32];
    name_of(w, &made, name);
    expect(w, "a name before it is made", name, TRY(faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW)), ENOENT);
    switch (made.kind) {
    case FILE_: {
        made.inode = w->next_inode++;
        int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) fail(w, "create", name, errno, 0);
        int length = snprintf(text, sizeof text, "%u\n", made.inode);
        if (write(fd, text, (size_t)length) != length) fail(w, "write", name, errno, 0);
        expect(w, "close", name, TRY(close(fd)), 0);
        break;
    }
    case DIRECTORY: expect(w, "mkdir", name, TRY(mkdirat(at, name, 0700)), 0); break;
    case LINK: expect(w, "symlink", name, TRY(symlinkat("nowhere", at, name)), 0); break;
    default: expect(w, "mkfifo", name, TRY(mkfifoat(at, name, 0600)), 0); break;
    }
    *place = made;
    if (draw(w, 2)) expect(w, "create again", name, TRY(openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)), EEXIST);
    if (draw(w, 4) == 0) expect(w, "mkdir again", name, TRY(mkdirat(at, name, 0700)), EEXIST);
}

static void remove_one(struct worker *w) {
    struct entry *e = find(w, is_any);
    if (!e) return;
    int at = w->directories[e->directory];
    char name[32], child[48];
    name_of(w, e, name);
    snprintf(child, sizeof child, "%s/child", name);
    bool is_dir = e->kind == DIRECTORY;
    if (draw(w, 3) == 0) {
        int result = TRY(unlinkat(at, name, is_dir ? 0 : AT_REMOVEDIR));
        expect(w, "the wrong way to remove", name, result, is_dir ? EISDIR : ENOTDIR);
    }
    if (is_dir && e->has_child) {
        expect(w, "rmdir of a full", name, TRY(unlinkat(at, name, AT_REMOVEDIR)), ENOTEMPTY);
        expect(w, "unlink the file in", name, TRY(unlinkat(at, child, 0)), 0);
        e->has_child = false;
    }
    // Held open during the removal: the open file has one link less and the same content.
    int held = e->kind == FILE_ && draw(w, 2) ? openat(at, name, O_RDONLY | O_CLOEXEC) : -1;
    unsigned links = e->kind == FILE_ ? links_of(w, e) : 0;
    expect(w, "remove", name, TRY(unlinkat(at, name, is_dir ? AT_REMOVEDIR : 0)), 0);
    expect(w, "a removed", name, TRY(faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW)), ENOENT);
    if (held >= 0) {
        struct stat status;
        char text[32] = "";
        expect(w, "fstat of a removed", name, TRY(fstat(held, &status)), 0);
        if (status.st_nlink != links - 1) fail(w, "links of a removed", name, (int)status.st_nlink, (int)links - 1);
        if (read(held, text, sizeof text - 1) < 0 || strtoul(text, NULL, 10) != e->inode) fail(w, "content of a removed", name, errno, 0);
        close(held);
    }
    e->kind = NOTHING;
}

static void link_one(struct worker *w) {
    struct entry *e = find(w, is_file), *place = find(w, is_free);
    if (!e || !place) return;
    struct entry made = fresh(w, FILE_);
    made.inode = e->inode;
    char name[32], new_name[32];
    name_of(w, e, name);
    name_of(w, &made, new_name);
    expect(w, "link", name, TRY(linkat(w->directories[e->directory], name, w->directories[made.directory], new_name, 0)), 0);
    *place = made;
    check_entry(w, e);
}

static void move(struct worker *w) {
    struct entry *e = find(w, is_any);
    if (!e) return;
    struct entry moved = fresh(w, e->kind);
    moved.inode = e->inode;
    moved.has_child = e->has_child;
    char name[32], new_name[32];
    name_of(w, e, name);
    name_of(w, &moved, new_name);
    unsigned flags = draw(w, 3) ? 0 : RENAME_NOREPLACE;
    int from = w->directories[e->directory];
    expect(w, "rename", name, TRY(renameat2(from, name, w->directories[moved.directory], new_name, flags)), 0);
    expect(w, "a name that was renamed", name, TRY(faccessat(from, name, F_OK, AT_SYMLINK_NOFOLLOW)), ENOENT);
    *e = moved;
}

static void move_over(struct worker *w) {
    struct entry *e = find(w, is_any), *other = find(w, is_any);
    if (!e || !other || e == other) return;
    char name[32], other_name[32];
    name_of(w, e, name);
    name_of(w, other, other_name);
    int from = w->directories[e->directory], to = w->directories[other->directory];
    if (draw(w, 3) == 0) {
        expect(w, "RENAME_NOREPLACE onto", other_name, TRY(renameat2(from, name, to, other_name, RENAME_NOREPLACE)), EEXIST);
        return;
    }
    if (draw(w, 2)) {
        expect(w, "RENAME_EXCHANGE with", other_name, TRY(renameat2(from, name, to, other_name, RENAME_EXCHANGE)), 0);
        struct entry old = *e;
        *e = *other, e->directory = old.directory, e->number = old.number;
        int directory = other->directory;
        unsigned number = other->number;
        *other = old, other->directory = directory, other->number = number;
        return;
    }
    bool is_dir = e->kind == DIRECTORY, onto_dir = other->kind == DIRECTORY;
    int wanted = is_dir && !onto_dir ? ENOTDIR : !is_dir && onto_dir ? EISDIR : onto_dir && other->has_child ? ENOTEMPTY : 0;
    expect(w, "rename onto", other_name, TRY(renameat(from, name, to, other_name)), wanted);
    // A rename to another name of the same file changes nothing, and both names remain.
    if (wanted || (e->kind == FILE_ && other->kind == FILE_ && e->inode == other->inode)) return;
    other->kind = e->kind, other->inode = e->inode, other->has_child = e->has_child;
    e->kind = NOTHING;
}

static void child(struct worker *w) {
    struct entry *e = find(w, is_directory);
    if (!e) return;
    char name[32], path[48];
    name_of(w, e, name);
    snprintf(path, sizeof path, "%s/child", name);
    int at = w->directories[e->directory];
    if (e->has_child) {
        expect(w, "unlink the file in", name, TRY(unlinkat(at, path, 0)), 0);
    } else {
        int fd = openat(at, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) fail(w, "create in", name, errno, 0);
        close(fd);
    }
    e->has_child = !e->has_child;
}

// Names that all the processes use. The result is not predictable, but it must be one of the
// possible results.
static void race(struct worker *w) {
    char name[32], other[32];
    snprintf(name, sizeof name, "all-%d", (int)draw(w, SHARED));
    snprintf(other, sizeof other, "all-%d", (int)draw(w, SHARED));
    int at = w->directories[draw(w, DIRECTORIES)], to = w->directories[draw(w, DIRECTORIES)], result, fd;
    switch (draw(w, 6)) {
    case 0:
        fd = openat(at, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
        result = fd < 0 ? errno : 0;
        if (fd >= 0) close(fd);
        break;
    case 1: result = TRY(mkdirat(at, name, 0777)); break;
    case 2: result = TRY(unlinkat(at, name, 0)); break;
    case 3: result = TRY(unlinkat(at, name, AT_REMOVEDIR)); break;
    case 4: result = TRY(linkat(at, name, to, other, 0)); break;
    default: result = TRY(renameat(at, name, to, other)); break;
    }
    switch (result) {
    case 0: case ENOENT: case EEXIST: case EISDIR: case ENOTDIR: case EPERM: case ENOTEMPTY: return;
    default: fail(w, "a race for", name, result, 0);
    }
}

void step(struct worker *w) {
    static void (*const operations[])(struct worker *) = {
        make, make, make, remove_one, remove_one, link_one, move, move_over, move_over, child, race, race,
    };
    operations[draw(w, sizeof operations / sizeof *operations)](w);
    struct entry *e = find(w, is_any);
    if (e && draw(w, 3) == 0) check_entry(w, e);
    if (draw(w, 40) == 0) check_listing(w, (int)draw(w, DIRECTORIES));
    w->done++;
}
