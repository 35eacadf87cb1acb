import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

/// The place of a document's file, on the host and in its scope: docs/decisions/documents.md.
///
/// Locking: two locks of its own. `withStep` is held for one step of a request, system calls on the
/// host included. The lock of the state, rank 2, is held for a moment.
public final class DocumentPlace: Sendable {
    /// A file or directory of the host, O_PATH. Closed with the last reference.
    public final class Held: Sendable {
        public let descriptor: FileDescriptor

        public init(_ descriptor: consuming FileDescriptor) { self.descriptor = descriptor }
    }

    /// A name in a directory of the host.
    public struct Entry: Sendable {
        public let directory: Held
        /// NUL-terminated.
        public let name: [CChar]

        public init(_ directory: Held, _ name: [CChar]) { (self.directory, self.name) = (directory, name) }
    }

    /// The process that moved the document away, immune to reuse of its number.
    public struct Maker: Hashable, Sendable {
        let pid: Int32
        let start: UInt64

        /// The result is nil if the process is not visible.
        public init?(thread: Int32) {
            pid = ProcessName.process(ofThread: thread)
            guard let start = ProcessName.start(of: pid) else { return nil }
            self.start = start
        }

        public var isGone: Bool { ProcessName.start(of: pid) != start }
    }

    private struct State {
        /// nil after `releaseDescriptors`.
        var entry: Entry?
        var workplace: Held?
        /// The document itself, which finds it after a move.
        var file: Held?
        var key: NodeKey
        /// The file that is being put in the document's place through the scope.
        var coming: NodeKey?
        var owner: UInt32
        /// Whether a program has moved the document to another name and not replaced it yet.
        ///
        /// The view then shows no document, and the host still has the old one.
        var isAway = false
        /// The process that moved it, and the time of that (`Clock.monotonic`).
        var leaver: (maker: Maker?, time: Int64)?
        /// The program's new document, which is still being written.
        var staged: NodeKey?
        /// In a view that shows a file: its node, counted once for the scope, and the status then.
        var node: (id: UInt64, status: FileStatus)?
        /// Counts replacements of the file. `isOurs`: whether the last one came through the scope.
        var changes: UInt64 = 0
        var isOurs = false
    }

    private let state: Lock<State>
    private let step = Lock(())
    /// Whether the scope shows a directory that holds the document.
    public let isDirectory: Bool
    /// The document's name there. NUL-terminated.
    public let name: [CChar]

    /// Makes the place of a document.
    ///
    /// - Parameter workplace: The directory that the scope shows, if it shows one. It is a
    ///   directory of the host that only this mount uses.
    public init(_ entry: Entry, file: Held, key: NodeKey, owner: UInt32, name: [CChar], workplace: Held?) {
        self.name = name
        isDirectory = workplace != nil
        state = Lock(State(entry: entry, workplace: workplace, file: file, key: key, owner: owner))
    }

    /// Runs one step of a request that finds, makes, moves or replaces the document.
    ///
    /// The state of the host and of this object, as the step reads it, stays true until its end.
    /// FLUSH replaces the document without the kernel's lock of the directory.
    @inline(__always)
    public func withStep<Result>(_ body: () -> Result) -> Result { step.withLock { _ in body() } }

    /// The prefix of names in the document's directory that no program sees or makes.
    public static let reserved = ".grantfs-"
    /// The name of a new document while it is being written.
    public static let stagedName = Array(".grantfs-new".utf8CString)

    /// Whether a name in the document's directory is the document's own.
    @inline(__always)
    public func isNamed(_ text: UnsafePointer<CChar>) -> Bool { name.withUnsafeBufferPointer { strcmp($0.baseAddress!, text) == 0 } }

    /// Whether a name in the document's directory is hidden.
    @inline(__always)
    public static func isReserved(_ text: UnsafePointer<CChar>) -> Bool { strncmp(text, reserved, 9) == 0 }

    /// Whether a name in any directory is that of a workplace (`DocumentWorkplace`).
    ///
    /// Such a name is the prefix and 16 hexadecimal digits. No view shows it. Files that programs
    /// make beside a document do not belong to users with a grant of the directory. Files that
    /// other processes put there would be reached through the document's grant.
    @inline(__always)
    public static func isWorkplace(_ text: UnsafePointer<CChar>) -> Bool { text[0] == 0x2E && text[1] == 0x67 && isWorkplaceName(text) }

    @inline(never)
    private static func isWorkplaceName(_ text: UnsafePointer<CChar>) -> Bool {
        guard isReserved(text), strlen(text) == 25 else { return false }
        return strspn(text + 9, "0123456789abcdef") == 16
    }

    /// The document's place on the host. nil after `releaseDescriptors`.
    public var entry: Entry? { state.withLock { $0.entry } }

    public var workplace: Held? { state.withLock { $0.workplace } }
    public var file: Held? { state.withLock { $0.file } }

    /// Releases every descriptor. Descriptors in use are closed later.
    public func releaseDescriptors() {
        // Closed outside of the lock.
        let held = state.withLock { state -> [Held?] in
            defer { (state.entry, state.workplace, state.file) = (nil, nil, nil) }
            return [state.entry?.directory, state.workplace, state.file]
        }
        withExtendedLifetime(held) {}
    }

    /// The place of the document that the scope shows. It is nil if it shows none at the moment.
    public var shown: Entry? {
        state.withLock { state in
            if state.staged != nil, let workplace = state.workplace { return Entry(workplace, Self.stagedName) }
            return state.isAway ? nil : state.entry
        }
    }

    public var isAway: Bool { state.withLock { $0.isAway } }
    public var isStaged: Bool { state.withLock { $0.staged != nil } }
    public var key: NodeKey { state.withLock { $0.key } }
    /// Whether `key` is the document, or is just replacing it through the scope.
    public func isKnown(_ key: NodeKey) -> Bool { state.withLock { $0.key == key || $0.coming == key } }
    /// Announces that a file is about to replace the document. nil ends that.
    public func expect(_ key: NodeKey?) { state.withLock { $0.coming = key } }
    public var owner: UInt32 { state.withLock { $0.owner } }
    /// The number of replacements, and whether the last one came through the scope.
    public var changes: (count: UInt64, isOurs: Bool) { state.withLock { ($0.changes, $0.isOurs) } }

    /// Whether `key` is the program's new document, which is still being written.
    public func isStaged(_ key: NodeKey) -> Bool { state.withLock { $0.staged == key } }

    /// Records that the program moved the document away.
    ///
    /// The view shows none until the program makes another one.
    public func leave(by maker: Maker?) {
        state.withLock { state in
            state.isAway = true
            state.staged = nil
            state.leaver = (maker, Clock.monotonic)
        }
    }

    /// Shows the document again if the program that moved it away has ended.
    ///
    /// Does nothing if the program has replaced it. The move must be more than `patience`
    /// nanoseconds ago, because a shell command consists of several programs.
    ///
    /// - Parameter isOpen: Whether a file is open. Its holder may yet finish the new document.
    public func comeBack(after patience: Int64, _ isOpen: (NodeKey) -> Bool) {
        let (leaver, staged) = state.withLock { ($0.isAway ? $0.leaver : nil, $0.staged) }
        guard let leaver, Clock.monotonic - leaver.time > patience, let maker = leaver.maker, maker.isGone else { return }
        if let staged, isOpen(staged) { return }
        state.withLock { state in
            guard state.isAway, state.leaver?.time == leaver.time else { return }
            state.isAway = false
            state.staged = nil
        }
    }

    /// Drops a new document whose writer was killed: the old one is shown again.
    public func abandon(_ key: NodeKey) {
        state.withLock { state in
            guard state.staged == key else { return }
            state.isAway = false
            state.staged = nil
        }
    }

    private let isListedWithout = Atomic<Bool>(false)
    /// Records that the directory was listed without the document.
    public func noteListedWithout() { isListedWithout.store(true, ordering: .releasing) }
    /// Whether that has happened since the last call.
    public func takeListedWithout() -> Bool { isListedWithout.exchange(false, ordering: .acquiringAndReleasing) }

    /// Records that the program has begun a new document.
    public func stage(_ key: NodeKey) { state.withLock { $0.staged = key } }

    /// Records that the program removed its new document.
    public func unstage() { state.withLock { $0.staged = nil } }

    /// Records that another file has replaced the document on the host.
    public func take(_ file: Held, key: NodeKey, owner: UInt32, isOurs: Bool) {
        // Closed outside of the lock.
        let old = state.withLock { state -> Held? in
            state.isAway = false
            state.staged = nil
            if state.key == key || state.entry == nil { return file }
            defer { state.file = file }
            (state.key, state.owner, state.isOurs) = (key, owner, isOurs)
            state.changes &+= 1
            return state.file
        }
        withExtendedLifetime(old) {}
    }

    /// Records the document's new place on the host.
    public func move(to entry: Entry) {
        let old = state.withLock { state -> Entry? in
            guard state.entry != nil else { return entry }
            defer { state.entry = entry }
            return state.entry
        }
        withExtendedLifetime(old) {}
    }

    /// Sets the node behind the name of a scope that shows a file.
    ///
    /// Returns the old node, which is no longer counted.
    public func show(_ id: UInt64, _ status: FileStatus) -> UInt64? {
        state.withLock { state in
            defer { state.node = (id, status) }
            return state.node?.id
        }
    }

    /// The node of a scope that shows a file, with the status it was set with.
    public var node: (id: UInt64, status: FileStatus)? { state.withLock { $0.node } }
}
