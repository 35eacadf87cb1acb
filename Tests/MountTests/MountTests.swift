import Testing
import TestSupport

/// Everything below needs a kernel that mounts. One suite around all, so that there is one reason when it is skipped.
@Suite(.enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
enum MountTests {}
