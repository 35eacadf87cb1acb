#include "hostile.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST = 4096 };
static struct node nodes[MOST];
static unsigned count;

static const struct { const char *word; enum oddity oddity; } words[] = {
    {"plain", PLAIN}, {"size", SIZE}, {"negative", NEGATIVE}, {"time", TIME}, {"inode", INODE}, {"links", LINKS}, {"mode", MODE}, {"type", TYPE},
    {"length", LENGTH}, {"seek", SEEK}, {"control", CONTROL}, {"attribute", ATTRIBUTE}, {"list", LIST}, {"long", LONG}, {"empty", EMPTY},
    {"error", ERROR}, {"late", LATE}, {"random", RANDOM}, {NULL, PLAIN},
};

static uint32_t type_of(char letter) {
    switch (letter) {
    case 'd': return S_IFDIR;
    case 'l': return S_IFLNK;
    case 'p': return S_IFIFO;
    default: return S_IFREG;
    }
}

static struct node *add(const char *name, size_t length, uint32_t type, enum oddity oddity, int64_t number) {
    if (count == MOST) return NULL;
    struct node *node = &nodes[count++];
    memcpy(node->name, name, length);
    node->id = count;
    node->inode = oddity == INODE ? (uint64_t)number : count;
    node->type = type;
    node->oddity = oddity;
    node->number = number;
    return node;
}

struct node *node_named(const char *name, size_t length) {
    if (length < 3 || length >= sizeof nodes[0].name || name[1] != '-') return NULL;
    for (unsigned i = 0; i < count; i++)
        if (strlen(nodes[i].name) == length && !memcmp(nodes[i].name, name, length)) return &nodes[i];
    for (int i = 0; words[i].word; i++) {
        size_t own = strlen(words[i].word);
        if (length < own + 2 || memcmp(name + 2, words[i].word, own)) continue;
        return add(name, length, type_of(name[0]), words[i].oddity, (int64_t)strtoull(name + 2 + own, NULL, 10));
    }
    return NULL;
}

struct node *node_of(uint64_t id) {
    if (count == 0) add("", 0, S_IFDIR, PLAIN, 0);
    return id > 0 && id <= count ? &nodes[id - 1] : NULL;
}

// The same numbers in each run.
uint64_t any_number(void) {
    static uint64_t state = 1;
    uint64_t x = state += 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
}

uint64_t odd_number(void) {
    static const uint64_t ends[] = {
        0, 1, 2, 511, 512, 4095, 4096, 65535, 65536, INT32_MAX, (uint64_t)INT32_MAX + 1, UINT32_MAX, (uint64_t)UINT32_MAX + 1, 1ull << 56,
        INT64_MAX - 1, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX - 4095, UINT64_MAX - 1, UINT64_MAX,
    };
    uint64_t pick = any_number();
    return pick % 8 == 0 ? any_number() : ends[(pick >> 8) % (sizeof ends / sizeof *ends)];
}
