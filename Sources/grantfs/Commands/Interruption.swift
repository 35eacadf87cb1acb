import Glibc
import Synchronization

/// What Ctrl-C says while a command waits for mounts, and the status that it ends with.
enum Interruption {
    /// The line to write, its length, the status. A handler of a signal may read nothing that takes a lock or makes memory.
    private static let line = Atomic<UInt>(0)
    private static let count = Atomic<Int>(0)
    private static let status = Atomic<Int>(0)

    /// From now on an interruption says this. What was said before is never freed, because a handler may be writing it.
    static func says(_ text: String, status: Int32) {
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

    /// From now on it ends the command without a word again.
    static func end() { signal(SIGINT, SIG_DFL) }
}
