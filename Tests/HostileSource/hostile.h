// A filesystem whose replies break the rules. It speaks to /dev/fuse directly, because libfuse
// would refuse most of its replies.
#ifndef HOSTILE_H
#define HOSTILE_H

#include <linux/fuse.h>
#include <stddef.h>
#include <stdint.h>

// A node's name tells its oddity: TYPE-ODDITY, where TYPE is f, d, l (regular file, directory,
// link) or p (FIFO), and ODDITY begins with a word of this list.
enum oddity {
    PLAIN,     // nothing: a small file, a directory.
    SIZE,      // the largest possible size.
    NEGATIVE,  // a size below zero.
    TIME,      // times before 1970, after 2262, with more than 10^9 nanoseconds.
    INODE,     // the inode number after the word, which two files of different types may share.
    LINKS,     // no link, and more than 2^31.
    MODE,      // bits that no mode has.
    TYPE,      // another type at each request.
    LENGTH,    // reads longer or shorter than the request, writes that took more than the data.
    SEEK,      // holes at offsets that do not exist.
    CONTROL,   // an ioctl(2) that returns any number.
    ATTRIBUTE, // extended attributes at their limits, lists without an end.
    LIST,      // a listing with odd names, types and positions.
    LONG,      // a link whose target fills a page.
    EMPTY,     // a link with an empty target.
    ERROR,     // fails with the number after the word, even an invalid one.
    LATE,      // done writes, printed (“written”) and answered a second later, with all written bytes as the size.
    RANDOM,    // any of these, and random bytes.
};

struct node {
    char name[64];
    uint64_t id;
    uint64_t inode;
    uint32_t type;  // S_IFMT
    enum oddity oddity;
    int64_t number; // after the word
};

/// The node of a name, made at the first request, or NULL for a name that describes no node.
struct node *node_named(const char *name, size_t length);
struct node *node_of(uint64_t id);
/// A random number at a limit.
uint64_t odd_number(void);
uint64_t any_number(void);

/// The extreme numbers of statfs(2): "files", "blocks", "all", or "" for small ones.
extern const char *space;

void answer(uint64_t unique, int error, const void *data, size_t size);

void say_attributes(struct node *node, struct fuse_attr *out);
void answer_entry(const struct fuse_in_header *in, struct node *node);
void answer_listing(const struct fuse_in_header *in, struct node *node, const struct fuse_read_in *read);
void answer_space(const struct fuse_in_header *in);
/// Answers every request about one node.
void answer_for(const struct fuse_in_header *in, struct node *node, const void *body);

#endif
