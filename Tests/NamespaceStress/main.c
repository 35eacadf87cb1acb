// NamespaceStress [--seed N] [--processes N] [--seconds S] DIRECTORY
// Exits with 0 if every result was correct. Otherwise prints the wrong result and exits with 1.
#include "stress.h"
#include <getopt.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

uint64_t draw(struct worker *w, uint64_t below) {
    // splitmix64
    uint64_t z = (w->random += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % below;
}

void fail(struct worker *w, const char *what, const char *name, int got, int wanted) {
    fprintf(stderr, "process %d, step %lu: %s %s: got %d (%s), must be %d\n", w->id, w->done, what, name, got, strerror(got), wanted);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void open_directories(struct worker *w, const char *base) {
    char path[4096];
    for (int i = 0; i < DIRECTORIES; i++) {
        snprintf(path, sizeof path, "%s/d%d", base, i);
        if (mkdir(path, 0777) && errno != EEXIST) fail(w, "mkdir", path, errno, 0);
        w->directories[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (w->directories[i] < 0) fail(w, "open", path, errno, 0);
    }
}

static int work(int id, uint64_t seed, double seconds, const char *base) {
    static struct worker w;
    w.id = id;
    w.random = seed * 1000003u + (uint64_t)id;
    w.next_inode = 1;
    open_directories(&w, base);
    for (double end = now() + seconds; now() < end;) step(&w);
    // The last check: all entries exist, and nothing else.
    for (int i = 0; i < ENTRIES; i++)
        if (w.entries[i].kind != NOTHING) check_entry(&w, &w.entries[i]);
    for (int i = 0; i < DIRECTORIES; i++) check_listing(&w, i);
    printf("process %d: %lu steps\n", id, w.done);
    return 0;
}

int main(int count, char **arguments) {
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},    {"processes", required_argument, NULL, 'p'},
        {"seconds", required_argument, NULL, 't'}, {"worker", required_argument, NULL, 'w'},
        {NULL, 0, NULL, 0},
    };
    const char *seed = "1", *seconds = "5";
    int processes = 4, id = -1;
    for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;) switch (option) {
        case 's': seed = optarg; break;
        case 'p': processes = atoi(optarg); break;
        case 't': seconds = optarg; break;
        case 'w': id = atoi(optarg); break;
        default: return 2;
        }
    if (optind + 1 != count || processes < 1 || processes > 64) {
        fprintf(stderr, "usage: %s [--seed N] [--processes N] [--seconds S] DIRECTORY\n", arguments[0]);
        return 2;
    }
    if (id >= 0) return work(id, strtoull(seed, NULL, 0), strtod(seconds, NULL), arguments[optind]);

    pid_t children[64];
    for (int i = 0; i < processes; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        char *words[] = {arguments[0], "--worker", number, "--seed", (char *)seed, "--seconds", (char *)seconds, arguments[optind], NULL};
        if ((errno = posix_spawn(&children[i], "/proc/self/exe", NULL, NULL, words, environ))) {
            perror("posix_spawn");
            return 1;
        }
    }
    int worst = 0;
    for (int i = 0; i < processes; i++) {
        int status;
        if (waitpid(children[i], &status, 0) < 0 || status != 0) worst = 1;
    }
    return worst;
}
