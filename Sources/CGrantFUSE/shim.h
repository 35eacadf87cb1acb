#pragma once
#define FUSE_USE_VERSION 314
#include <errno.h>
#include <fuse_lowlevel.h>
#include <fuse_opt.h>

// What libfuse's versions do not have in common, under one name each. The header's version says what can be compiled; the loaded library is asked
// where libraries with the same soname differ (libfuse3.so.3 is 3.0 to 3.16, libfuse3.so.4 is 3.17 and later).

// fuse_session_new: from 3.17 on a macro, which Swift does not import.
static inline struct fuse_session *cfuse3_session_new(
    struct fuse_args *args, const struct fuse_lowlevel_ops *operations, size_t size, void *context) {
    return fuse_session_new(args, operations, size, context);
}

// Makes the kernel ask for a name again; what is mounted below it stays. -ENOSYS where the kernel or the library has only
// fuse_lowlevel_notify_inval_entry.
static inline int cfuse3_expire_entry(struct fuse_session *session, fuse_ino_t parent, const char *name, size_t length) {
#if FUSE_VERSION < FUSE_MAKE_VERSION(3, 15)
    return fuse_lowlevel_notify_expire_entry(session, parent, name, length, FUSE_LL_EXPIRE_ONLY);
#else
    // A library before 3.15 would take for flags what happens to be where the fifth argument was.
    if (fuse_version() < FUSE_MAKE_VERSION(3, 15)) return -ENOSYS;
    return fuse_lowlevel_notify_expire_entry(session, parent, name, length);
#endif
}

// In the answer to FUSE_INIT: asks for those of the capabilities `wanted` that there are, and for nothing else, whatever the library would ask for by itself.
static inline void cfuse3_want(struct fuse_conn_info *connection, uint64_t wanted) {
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
    connection->want_ext = wanted & connection->capable_ext;
    connection->want = (uint32_t)connection->want_ext;
#else
    connection->want = (uint32_t)wanted & connection->capable;
#endif
}
