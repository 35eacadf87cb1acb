import TestSupport
import Testing

/// Everything below runs the installed program on a bus of its own, with real mounts.
@Suite(.enabled(if: PortalSession.isPossible, Comment(rawValue: PortalSession.why)))
enum GrantPortalTests {}
