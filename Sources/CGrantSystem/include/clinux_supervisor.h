// A process that shares a daemon's descriptors, and starts another daemon when it has died.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    // How many deaths are recorded.
    CLINUX_CRASHES_KEPT = 8,
    CLINUX_CRASH_SECONDS = 60,
    // How many running requests are recorded when a daemon dies.
    CLINUX_SUSPECTS = 4096,
    // Workers, and filesystems with their own inode numbers.
    CLINUX_SUPERVISED_WORKERS = 1024,
    CLINUX_SUPERVISED_DEVICES = 256,
    // Parked requests, and how many bytes of a request are journaled.
    //
    // Requests with data are longer.
    CLINUX_PARKED = 1 << 17,
    CLINUX_JOURNALED_BYTES = 256,
};

// A request that was running when a daemon died.
struct clinux_suspect {
    uint64_t unique;
    // How many daemons have died with it.
    uint32_t deaths;
    uint32_t opcode;
};

// A worker's request. `unique` is 0 while it has none.
//
// If the kernel cannot resend, `received` has the beginning of the received request.
struct clinux_request {
    uint64_t unique;
    uint32_t opcode;
    uint8_t unused[52];
    uint8_t received[CLINUX_JOURNALED_BYTES];
};

// A parked request. `size` is 0 in a free entry.
struct clinux_parked {
    uint32_t size;
    uint32_t unused;
    uint8_t bytes[CLINUX_JOURNALED_BYTES];
};

// The process that responds to the daemon's death.
enum clinux_armed {
    // None: there is no mount yet, it has ended, or the next daemon and its own supervisor have it.
    CLINUX_ARMED_NOT = 0,
    // The supervisor.
    CLINUX_ARMED = 1,
    // The supervisor, which has given up the daemon that it started last. That daemon must not
    // serve.
    CLINUX_ARMED_TAKEN_BACK = 2,
};

// The page that a daemon and its supervisor share, and that the next daemon inherits.
//
// It is the beginning of a memory file. Descriptor numbers are the daemon's.
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
    // The number of deaths within CLINUX_CRASH_SECONDS after which another daemon still follows.
    uint32_t crashes_allowed;
    // Seconds for the next daemon to send another request or to serve, and for the mount without
    // one.
    uint32_t patience;
    uint32_t longest_alone;
    // CLOCK_MONOTONIC in seconds, the last one at `crashes - 1` modulo their number.
    int64_t crashed[CLINUX_CRASHES_KEPT];
    uint32_t suspect_count;
    // Whether requests are journaled, and whether one did not fit.
    //
    // If the kernel cannot resend, they are journaled as they arrive and while they are parked.
    uint32_t journals_requests;
    uint32_t journal_overflowed;
    // The first entry for parked requests that was never used.
    uint32_t journal_end;
    // The number of filesystems, in the order in which they were found. May exceed the room for
    // them.
    uint32_t device_count;
    // How many bytes of a log of claims are valid, and in the highest bit the number of that log.
    //
    // Written at once.
    uint64_t claims_valid;
    // How many have registered as presenters.
    uint32_t presenter_count;
};

// Words of the next daemon: it requests the page, or descriptors, it serves, or it never will.
enum { CLINUX_SUPERVISOR_PAGE = 'p', CLINUX_SUPERVISOR_DESCRIPTORS = 'd', CLINUX_SUPERVISOR_SERVING = 's', CLINUX_SUPERVISOR_DECLINED = 'n' };

// Starts the supervisor of this process, and returns its process ID.
//
// This process must have one thread. The supervisor shares the descriptor table (clone(2),
// CLONE_FILES), so descriptors stay open when this process dies. `page` is mapped memory of the
// file that it names.
//
// When this process dies while it is armed, the supervisor starts the same program with `arguments`
// (execve(2), ending with NULL) and a socket as descriptor 3. Over that socket it passes
// descriptors. It answers a byte 'p' with the page's. It answers 'd', a count and that many numbers
// (int32_t) with those, in batches that are acknowledged by one byte each. 's' ends it, after it
// sent `goodbye` to the keeper. In any other case it ends and everything is closed.
//
// `previous`: the page of the supervisor that started this daemon, or NULL. While that one is armed
// it owns the mount, and this daemon's supervisor ends with the daemon.
//
// `locked`: paths, ending with NULL, of files in which the daemon may hold fcntl(2) locks
// (F_SETLK). Those belong to the descriptor table, so they would otherwise outlive the daemon.
int clinux_supervise(struct clinux_supervised *page, struct clinux_supervised *previous, char *const *arguments, char goodbye, char *const *locked);

void clinux_arm(struct clinux_supervised *page, bool is_armed);

// Takes the mount away from the supervisor of `page`.
//
// False if that has given up on the caller, which then must not serve.
bool clinux_take_from(struct clinux_supervised *page);

// The size of the file: the page is followed by arrays of the lengths above.
size_t clinux_supervised_size(void);
struct clinux_request *clinux_supervised_requests(struct clinux_supervised *page);
uint64_t *clinux_supervised_devices(struct clinux_supervised *page);
struct clinux_suspect *clinux_supervised_suspects(struct clinux_supervised *page);

// Written by its worker only, and read after the worker's death.
static inline void clinux_record_request(struct clinux_request *request, uint64_t unique) {
    __atomic_store_n(&request->unique, unique, __ATOMIC_RELEASE);
}

// Publishes `claims_valid` atomically with respect to this process's death.
static inline void clinux_publish_claims(struct clinux_supervised *page, uint64_t valid) {
    __atomic_store_n(&page->claims_valid, valid, __ATOMIC_RELEASE);
}

// Allocates a buffer for requests by malloc(3). Returns NULL if there is no memory.
//
// All its pages are present, and those of `request`. If the reader of a FUSE device is killed while the
// kernel makes a page of its buffer, the kernel answers the request with EIO, so the next daemon would not
// get it (fs/fuse/dev.c, fuse_dev_do_read). Killing does not disturb the copying to present pages.
void *clinux_receive_buffer(struct clinux_request *request, size_t size);

// read(2) from a FUSE device into `memory`, which also journals the request in `request`.
//
// Reads at most `size` bytes. Returns the bytes read or a negative error number.
int clinux_receive_journaled(int device, struct clinux_request *request, void *memory, size_t size);

// Journals a parked request of `size` bytes in an entry below CLINUX_PARKED.
//
// No other thread may use the entry. Atomic with respect to this process's death.
void clinux_journal_park(struct clinux_supervised *page, uint32_t place, const void *message, size_t size);
void clinux_journal_unpark(struct clinux_supervised *page, uint32_t place);

// A request that a crashed daemon had received.
//
// `place` is below CLINUX_SUPERVISED_WORKERS + `journal_end`. Returns its first bytes (at most
// CLINUX_JOURNALED_BYTES), or NULL for a free entry. Sets `size` to its full size.
const void *clinux_journaled_request(struct clinux_supervised *page, uint32_t place, size_t *size);
