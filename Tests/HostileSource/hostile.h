// A filesystem that answers with what no filesystem should. It speaks to /dev/fuse by itself: the library would not let most of it out.
#ifndef HOSTILE_H
#define HOSTILE_H

#include <linux/fuse.h>
#include <stddef.h>
#include <stdint.h>

// A node's name says what is odd about it: TYPE-ODDITY, where TYPE is f, d, l (regular file, directory, link) or p (FIFO), and ODDITY begins with a
// word of this list.
enum oddity {
    PLAIN,     // nothing: a small file, a directory
    SIZE,      // the largest size there is
    NEGATIVE,  // a size below zero
    TIME,      // times before 1970, after 2262, with more than 10^9 nanoseconds
    INODE,     // the inode number behind the word, which two files of different types may share
    LINKS,     // no link, and more than 2^31
    MODE,      // bits that no mode has
    TYPE,      // another type with each look
    LENGTH,    // reads that are longer or shorter than asked for, writes that took more than there was
    SEEK,      // holes at offsets that there are not
    CONTROL,   // an ioctl(2) that returns any number
    ATTRIBUTE, // extended attributes at their limits, lists without an end
    LIST,      // a listing with odd names, types and positions
    LONG,      // a link's text of a page
    EMPTY,     // a link without text
    ERROR,     // fails with the number behind the word, whatever it is
    LATE,      // writes that are done, said on standard output (“written”) and answered a second later; its size is what was written in all
    RANDOM,    // any of this, and random bytes
};

struct node {
    char name[64];
    uint64_t id;
    uint64_t inode;
    uint32_t type;  // S_IFMT
    enum oddity oddity;
    int64_t number; // behind the word
};

/// The node that a name stands for, made when it is asked for first; NULL for a name that says nothing.
struct node *node_named(const char *name, size_t length);
struct node *node_of(uint64_t id);
/// One of the numbers at which something ends.
uint64_t odd_number(void);
uint64_t any_number(void);

/// Which numbers statfs(2) gives: "files", "blocks", "all", or "" for small ones.
extern const char *space;

void answer(uint64_t unique, int error, const void *data, size_t size);

void say_attributes(struct node *node, struct fuse_attr *out);
void answer_entry(const struct fuse_in_header *in, struct node *node);
void answer_listing(const struct fuse_in_header *in, struct node *node, const struct fuse_read_in *read);
void answer_space(const struct fuse_in_header *in);
/// Everything that is asked of one node.
void answer_for(const struct fuse_in_header *in, struct node *node, const void *body);

#endif
