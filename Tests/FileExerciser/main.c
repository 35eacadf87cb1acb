// FileExerciser [--seed N] [--seconds S | --operations N] [--size BYTES] [--behind FILE] [--without OPERATION] FILE
// Exits with 0 and one line if every read returned the written data. Otherwise it prints the
// difference, the seed, and the last operations, and exits with 1.
#include "exerciser.h"
#include <getopt.h>
#include <time.h>

static uint64_t seed = 1;

uint64_t draw(struct exerciser *e, uint64_t below) {
    // splitmix64
    uint64_t z = (e->random += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return below ? (z ^ (z >> 31)) % below : 0;
}

static unsigned noted;
void note(struct exerciser *e, const char *name, size_t offset, size_t length) {
    snprintf(e->noted[noted++ % NOTED], sizeof e->noted[0], "%6u %-24s %8zu +%zu (size %zu)", e->operation, name, offset, length, e->size);
}

void fail(struct exerciser *e, const char *what) {
    fprintf(stderr, "%s: %s (seed %llu, operation %u); the last ones were:\n", e->path, what, (unsigned long long)seed, e->operation);
    for (unsigned i = noted < NOTED ? 0 : noted - NOTED; i < noted; i++) fprintf(stderr, "  %s\n", e->noted[i % NOTED]);
    exit(1);
}

void fail_errno(struct exerciser *e, const char *what) {
    char text[128];
    snprintf(text, sizeof text, "%s: %s", what, strerror(errno));
    fail(e, text);
}

bool refuse(struct operation *operation, int error) {
    if (error != EOPNOTSUPP && error != ENOSYS) return false;
    operation->refused = true;
    return true;
}

static struct operation *const families[] = {reads, changes, extents, whole};
static const unsigned shares[] = {40, 38, 18, 4};

static bool leave_out(const char *name) {
    for (unsigned family = 0; family < sizeof families / sizeof *families; family++)
        for (struct operation *o = families[family]; o->name; o++)
            if (strcmp(o->name, name) == 0) return o->refused = true;
    return false;
}

static struct operation *choose(struct exerciser *e) {
    uint64_t roll = draw(e, 100);
    unsigned family = 0;
    while (roll >= shares[family]) roll -= shares[family++];
    unsigned weights = 0;
    for (struct operation *o = families[family]; o->name; o++) weights += o->weight;
    uint64_t weight = draw(e, weights);
    struct operation *chosen = families[family];
    while (weight >= chosen->weight) weight -= (chosen++)->weight;
    return chosen;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char **arguments) {
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'}, {"seconds", required_argument, NULL, 't'}, {"operations", required_argument, NULL, 'n'},
        {"size", required_argument, NULL, 'z'}, {"behind", required_argument, NULL, 'b'},
        {"without", required_argument, NULL, 'w'}, {NULL, 0, NULL, 0},
    };
    struct exerciser e = {.fd = -1, .direct_fd = -1, .append_fd = -1, .limit = 256 * 1024};
    double seconds = 0;
    unsigned operations = 0;
    for (int option; (option = getopt_long(count, arguments, "", options, NULL)) != -1;) switch (option) {
        case 's': seed = strtoull(optarg, NULL, 0); break;
        case 't': seconds = strtod(optarg, NULL); break;
        case 'n': operations = (unsigned)strtoul(optarg, NULL, 0); break;
        case 'z': e.limit = strtoull(optarg, NULL, 0) & ~(size_t)(BLOCK - 1); break;
        case 'b': e.behind = optarg; break;
        case 'w':
            if (!leave_out(optarg)) return 2;
            break;
        default: return 2;
        }
    if (optind + 1 != count || e.limit < 4 * BLOCK) {
        fprintf(stderr, "usage: %s [--seed N] [--seconds S | --operations N] [--size BYTES]\n", arguments[0]);
        fprintf(stderr, "    [--behind FILE] [--without OPERATION] FILE\n");
        return 2;
    }
    if (operations == 0) operations = seconds > 0 ? ~0u : 10000;
    e.path = arguments[optind];
    e.random = seed * 0x2545F4914F6CDD1Du;
    e.model = calloc(1, e.limit);
    e.buffer = malloc(e.limit + BLOCK);
    e.aligned = aligned_alloc(BLOCK, e.limit);
    if (!e.model || !e.buffer || !e.aligned) fail_errno(&e, "memory");
    unlink(e.path);
    open_all(&e);

    double end = now() + seconds;
    for (e.operation = 1; e.operation <= operations && (seconds <= 0 || now() < end); e.operation++) {
        struct operation *operation = choose(&e);
        if (!operation->refused) operation->run(&e);
    }
    // A last comparison of the whole file, by a new descriptor and behind the mount.
    open_all(&e);
    reads[0].run(&e);
    whole[1].run(&e);
    printf("seed %llu: whole; left out:", (unsigned long long)seed);
    for (unsigned family = 0; family < sizeof families / sizeof *families; family++)
        for (struct operation *o = families[family]; o->name; o++)
            if (o->refused) printf(" %s;", o->name);
    printf("%s\n", e.direct_fd < 0 ? " O_DIRECT;" : "");
    return 0;
}
