import Testing
import TestSupport

/// Everything below needs a kernel that mounts. One suite around all, so that there is one reason when it is skipped.
@Suite(.enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
enum MountTests {}

/// One system call in a process of its own gives this errno.
func expectCall(
    _ arguments: String..., as identity: Identity = .current, gives expected: String, sourceLocation: SourceLocation = #_sourceLocation
) throws {
    let result = try Probe.call(arguments, as: identity)
    #expect(result == expected, "\(arguments.joined(separator: " "))", sourceLocation: sourceLocation)
}
