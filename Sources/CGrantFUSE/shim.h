#pragma once
#define FUSE_USE_VERSION 314
#include <errno.h>
#include <fuse_lowlevel.h>
#include <fuse_opt.h>

// The parts of libfuse that differ between versions, under one name each.
//
// The version of the header decides which code compiles. Libraries with the same soname differ
// (libfuse3.so.3 is 3.0 to 3.16, libfuse3.so.4 is 3.17 and later), so the loaded library's
// version is checked as well.

// Wraps fuse_session_new, which is a macro from 3.17 on and so not imported by Swift.
static inline struct fuse_session *cfuse3_session_new(
    struct fuse_args *args, const struct fuse_lowlevel_ops *operations, size_t size, void *context) {
    return fuse_session_new(args, operations, size, context);
}

// Makes the kernel look up a name again, without detaching mounts below it.
//
// Returns -ENOSYS if the kernel or the library has only fuse_lowlevel_notify_inval_entry.
static inline int cfuse3_expire_entry(struct fuse_session *session, fuse_ino_t parent, const char *name, size_t length) {
#if FUSE_VERSION < FUSE_MAKE_VERSION(3, 15)
    return fuse_lowlevel_notify_expire_entry(session, parent, name, length, FUSE_LL_EXPIRE_ONLY);
#else
    // A library before 3.15 would read unrelated bytes as its fifth argument, the flags.
    if (fuse_version() < FUSE_MAKE_VERSION(3, 15)) return -ENOSYS;
    return fuse_lowlevel_notify_expire_entry(session, parent, name, length);
#endif
}

// Requests the available capabilities of `wanted` and no others, in the reply to FUSE_INIT.
//
// Capabilities that the library would request by itself are dropped.
static inline void cfuse3_want(struct fuse_conn_info *connection, uint64_t wanted) {
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
    connection->want_ext = wanted & connection->capable_ext;
    connection->want = (uint32_t)connection->want_ext;
#else
    connection->want = (uint32_t)wanted & connection->capable;
#endif
}
