// CallTable [--sample N] DIRECTORY: prints the table (or each Nth case of it) for an empty
// directory, as root. Compare the output of two directories.
#include "table.h"
#include <grp.h>

char detail[256];

static const struct identity {
    const char *name;
    uid_t uid;
    gid_t gid;
    int groups;
} identities[] = {{"root", 0, 0, 0}, {"user", USER, USER, 0}, {"member", 1234, 1234, 1}};

// Changes the effective user only, so that it can go back. access(2) checks the real user, so that
// one changes as well.
static void become(const struct identity *who) {
    gid_t group = GROUP;
    if (setgroups((size_t)who->groups, &group) || setresgid(who->gid, who->gid, 0) || setresuid(who->uid, who->uid, 0)) fail("setresuid");
}
static void return_to_root(void) {
    if (setresuid(0, 0, 0) || setresgid(0, 0, 0)) fail("setresuid");
}

static void become_one(int who) { become(&identities[who]); }

// A write from a wrong address by a user other than the owner clears set-id bits before it fails. FUSE sends the same request for it as for
// a chown(2) of neither, which must not clear them, and never the write that would follow (docs/conformance.md).
static bool is_ruled_out(const struct identity *who, const struct call *call, const char *situation) {
    return who->groups && strcmp(call->name, "wrong addresses and offsets") == 0 && strcmp(situation, "setid") == 0;
}

static void print_case(const struct identity *who, const struct call *call, const char *situation) {
    if (is_ruled_out(who, call, situation)) return;
    detail[0] = 0;
    const char *path = path_of(situation);
    umask(022);
    become(who);
    int result = call->run(path);
    return_to_root();
    const char *name = result ? strerrorname_np(result) : "OK";
    printf("%s: %s: %s: %s%s%s", who->name, call->name, situation, name, detail[0] ? ", " : "", detail);
    if (result == 0 && call->changes) {
        printf(", then %016llx", (unsigned long long)digest());
        clear_tree();
        make_tree();
    }
    printf("\n");
}

int main(int count, char **arguments) {
    static const struct call *const families[] = {opening_calls, naming_calls, attribute_calls, looking_calls};
    unsigned long sample = 1, number = 0;
    if (count == 4 && strcmp(arguments[1], "--sample") == 0) sample = strtoul(arguments[2], NULL, 10);
    if ((count != 2 && count != 4) || sample == 0 || geteuid() != 0) {
        fprintf(stderr, "usage, as root: %s [--sample N] DIRECTORY\n", arguments[0]);
        return 2;
    }
    // One directory deeper, so that `..` is also part of the test.
    if (chdir(arguments[count - 1]) || mkdir("tree", 0777) || chdir("tree")) fail(arguments[count - 1]);
    make_tree();
    for (size_t i = 0; i < sizeof identities / sizeof *identities; i++)
        for (size_t family = 0; family < sizeof families / sizeof *families; family++)
            for (const struct call *call = families[family]; call->name; call++)
                for (const char *const *situation = situations; *situation; situation++)
                    if (number++ % sample == 0) print_case(&identities[i], call, *situation);
    clear_tree();
    print_times();
    print_modes(become_one, return_to_root, sizeof identities / sizeof *identities);
    print_owners();
    print_watching();
    print_descriptors();
    if (sample == 1) print_limits();
    return 0;
}
