import Glibc
import Synchronization
import GrantCommandLine

/// The message and exit status for Ctrl-C while a command waits for mounts.
package enum Interruption {
    /// The line, its length, and the status. A signal handler must not take locks or allocate memory.
    private static let line = Atomic<UInt>(0)
    private static let count = Atomic<Int>(0)
    private static let status = Atomic<Int>(0)

    /// Sets the message. The previous one is never freed, because a handler may be writing it.
    package static func says(_ text: String, status: Int32) {
        let bytes = Array("\ngrantfs: \(Terminal.visible(text))\n".utf8)
        let copy = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: bytes.count)
        _ = copy.initialize(from: bytes)
        Self.count.store(0, ordering: .sequentiallyConsistent)
        Self.status.store(Int(status), ordering: .sequentiallyConsistent)
        line.store(UInt(bitPattern: copy.baseAddress), ordering: .sequentiallyConsistent)
        Self.count.store(bytes.count, ordering: .sequentiallyConsistent)
        signal(SIGINT) { _ in
            let start = UnsafeRawPointer(bitPattern: Interruption.line.load(ordering: .sequentiallyConsistent))
            _ = write(2, start, Interruption.count.load(ordering: .sequentiallyConsistent))
            _exit(Int32(truncatingIfNeeded: Interruption.status.load(ordering: .sequentiallyConsistent)))
        }
    }

    /// Restores the default: the signal ends the command without a message.
    package static func end() { signal(SIGINT, SIG_DFL) }
}
