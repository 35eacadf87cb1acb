// A process that shares a daemon's descriptors, and starts another one when it has died.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    // Deaths that are remembered.
    CLINUX_CRASHES_KEPT = 8,
    CLINUX_CRASH_SECONDS = 60,
    // Requests under way when a daemon died that are remembered.
    CLINUX_SUSPECTS = 4096,
    // Workers, and filesystems whose inode numbers are told apart.
    CLINUX_SUPERVISED_WORKERS = 1024,
    CLINUX_SUPERVISED_DEVICES = 256,
    // Requests that were put aside, and how much of a request is noted: those with data are longer.
    CLINUX_PARKED = 1 << 17,
    CLINUX_JOURNALED_BYTES = 256,
};

// A request that was under way when a daemon died.
struct clinux_suspect {
    uint64_t unique;
    // How many daemons have died with it.
    uint32_t deaths;
    uint32_t opcode;
};

// A worker's request. `unique` is 0 while there is none that it has begun. Where the kernel cannot ask again, it writes the begin of what the worker receives to `received`.
struct clinux_request {
    uint64_t unique;
    uint32_t opcode;
    uint8_t unused[52];
    uint8_t received[CLINUX_JOURNALED_BYTES];
};

// A request that was put aside; `size` is 0 where there is none.
struct clinux_parked {
    uint32_t size;
    uint32_t unused;
    uint8_t bytes[CLINUX_JOURNALED_BYTES];
};

// Who is to answer a death.
enum clinux_armed {
    // Nobody: there is no mount yet, it has ended, or the next daemon and its own supervisor have it.
    CLINUX_ARMED_NOT = 0,
    // The supervisor.
    CLINUX_ARMED = 1,
    // The supervisor, which has given up the daemon that it has started last: that one must not serve.
    CLINUX_ARMED_TAKEN_BACK = 2,
};

// What a daemon and its supervisor both see, and what the next daemon gets to see: the begin of a memory file. Numbers of descriptors are those of the daemon.
struct clinux_supervised {
    // `enum clinux_armed`.
    uint32_t armed;
    // How many bytes of `state` are valid.
    uint64_t state_bytes;
    // The memory files: this one, the state that does not change, and the tables.
    int32_t page;
    int32_t state;
    int32_t nodes;
    int32_t files;
    int32_t directories;
    int32_t scopes;
    int32_t locks;
    // Two logs of claims, one of which counts: see `claims_valid`.
    int32_t claims[2];
    // The socket to the keeper, or -1.
    int32_t keeper;
    // The number of the next scope.
    uint32_t next_scope;
    uint32_t crashes;
    // So many within CLINUX_CRASH_SECONDS are followed by another daemon.
    uint32_t crashes_allowed;
    // How long the next daemon may take to ask for more or to serve, and how long the mount may be without one: seconds.
    uint32_t patience;
    uint32_t longest_alone;
    // CLOCK_MONOTONIC in seconds, the last one at `crashes - 1` modulo their number.
    int64_t crashed[CLINUX_CRASHES_KEPT];
    uint32_t suspect_count;
    // Whether requests are noted as they come and where they wait, because the kernel cannot ask again; and whether there was one more than could be noted.
    uint32_t journals_requests;
    uint32_t journal_overflowed;
    // The first place of those put aside that was never used.
    uint32_t journal_end;
    // Filesystems, in the order in which they were met. More than there is room for are counted all the same.
    uint32_t device_count;
    // How many bytes of a log of claims are valid, and in the highest bit which of the two it is. Written at once.
    uint64_t claims_valid;
    // How many have registered as presenters.
    uint32_t presenter_count;
};

// The word that asks for descriptors, the one that says that the next daemon serves, and the one that says that it never will.
enum { CLINUX_SUPERVISOR_PAGE = 'p', CLINUX_SUPERVISOR_DESCRIPTORS = 'd', CLINUX_SUPERVISOR_SERVING = 's', CLINUX_SUPERVISOR_DECLINED = 'n' };

// Starts the supervisor of this process, which must have one thread. It shares the table of descriptors (clone(2), CLONE_FILES), so what is open here is open there, and stays
// open when this process dies. `page` is mapped memory of the file whose number it says.
//
// When this process has died while it is armed, it starts the program of this process with `arguments` (execve(2), ending with NULL) and a socket as descriptor 3, over which it
// passes on descriptors: a byte 'p' is answered with the page's, and 'd', a count and so many numbers (int32_t) with those, in batches that are acknowledged by a byte each. 's'
// ends it; `goodbye` is sent to the keeper then. Else it ends, and everything is closed.
//
// Returns its process number.
// `previous`: the page of the supervisor that has started this daemon, or NULL. As long as that one is armed the mount is its, and this one's supervisor ends with the daemon.
// `locked`: paths, ending with NULL, of files in which the daemon may have locks of its own (fcntl(2), F_SETLK). Those belong to the table of descriptors, so they would last as long as that.
int clinux_supervise(struct clinux_supervised *page, struct clinux_supervised *previous, char *const *arguments, char goodbye, char *const *locked);

void clinux_arm(struct clinux_supervised *page, bool is_armed);

// From the moment of this on the supervisor of `page` has nothing to do with the mount any more. False when it has given up the caller, which must not serve then.
bool clinux_take_from(struct clinux_supervised *page);

// How many bytes the file has: the page is followed by arrays of the numbers above.
size_t clinux_supervised_size(void);
struct clinux_request *clinux_supervised_requests(struct clinux_supervised *page);
uint64_t *clinux_supervised_devices(struct clinux_supervised *page);
struct clinux_suspect *clinux_supervised_suspects(struct clinux_supervised *page);

// Only its worker writes it; who reads it does so when that has died.
static inline void clinux_record_request(struct clinux_request *request, uint64_t unique) {
    __atomic_store_n(&request->unique, unique, __ATOMIC_RELEASE);
}

// From now on `claims_valid` is that, whenever this process dies.
static inline void clinux_publish_claims(struct clinux_supervised *page, uint64_t valid) {
    __atomic_store_n(&page->claims_valid, valid, __ATOMIC_RELEASE);
}

// As read(2) of at most `size` bytes from a FUSE device to `*memory`, which is made by malloc(3) when it is NULL; what comes is noted in `request`. Returns how many bytes, or a negative
// error number.
int clinux_receive_journaled(int device, struct clinux_request *request, void **memory, size_t size);

// Notes a request of `size` bytes that is put aside, at a place below CLINUX_ASIDE that nobody else uses. It is there or not, whenever this process dies.
void clinux_journal_park(struct clinux_supervised *page, uint32_t place, const void *message, size_t size);
void clinux_journal_unpark(struct clinux_supervised *page, uint32_t place);

// One of the requests that a daemon which has died had received: `place` is below CLINUX_SUPERVISED_WORKERS + `journal_end`. Its first bytes, CLINUX_NOTED_BYTES at the most, or NULL where there is none,
// and how many it has.
const void *clinux_journaled_request(struct clinux_supervised *page, uint32_t place, size_t *size);
