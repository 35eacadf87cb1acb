import CGrantSystem
import Glibc
import GrantSystem

/// Where the one file of a document's scope is, on the host and in the scope: docs/decisions/documents.md.
///
/// Locking: its own, rank 2, held for a moment.
public final class DocumentPlace: Sendable {
    /// A file or directory of the host, O_PATH. It is closed when the last one who uses it has let go of it.
    public final class Held: Sendable {
        public let descriptor: FileDescriptor

        public init(_ descriptor: consuming FileDescriptor) { self.descriptor = descriptor }
    }

    /// A name in a directory of the host.
    public struct Entry: Sendable {
        public let directory: Held
        /// Ends with a NUL.
        public let name: [CChar]

        public init(_ directory: Held, _ name: [CChar]) { (self.directory, self.name) = (directory, name) }
    }

    /// A process, told from later ones with its number.
    public struct Maker: Hashable, Sendable {
        let pid: Int32
        let start: UInt64

        /// nil when it is not to be seen.
        public init?(thread: Int32) {
            pid = ProcessName.process(ofThread: thread)
            guard let start = ProcessName.start(of: pid) else { return nil }
            self.start = start
        }

        public var isGone: Bool { ProcessName.start(of: pid) != start }
    }

    private struct State {
        /// nil once the scope has let go of its descriptors.
        var entry: Entry?
        var workplace: Held?
        /// The document itself, which leads to it where it is moved to.
        var file: Held?
        var key: NodeKey
        /// What is just being put in its place through the scope.
        var coming: NodeKey?
        var owner: UInt32
        /// The program has moved the document to another name, and not yet put another one in its place: the view shows none, the host the old one.
        var isAway = false
        /// Who did that, and when (`Clock.monotonic`).
        var leaver: (maker: Maker?, time: Int64)?
        /// Who made what lies beside the document.
        var makers: [NodeKey: Maker] = [:]
        /// Since then the program has made a new one, which it writes yet.
        var staged: NodeKey?
        /// In a view that shows a file: its node, counted once for the scope, and the file as it was.
        var node: (id: UInt64, status: FileStatus)?
        /// Counts the files that have taken the place of others; `isOurs`: whether the last one did through the scope.
        var changes: UInt64 = 0
        var isOurs = false
    }

    private let state: Lock<State>
    /// Whether the scope shows a directory that holds the document.
    public let isDirectory: Bool
    /// What the document is called there. Ends with a NUL.
    public let name: [CChar]

    /// `workplace`: the directory that the scope shows, when it does: a directory of the host for this mount alone.
    public init(_ entry: Entry, file: Held, key: NodeKey, owner: UInt32, name: [CChar], workplace: Held?) {
        self.name = name
        isDirectory = workplace != nil
        state = Lock(State(entry: entry, workplace: workplace, file: file, key: key, owner: owner))
    }

    /// So begin names in the document's directory that no program sees or makes.
    public static let reserved = ".grantfs-"
    /// A new document that is written yet.
    public static let stagedName = Array(".grantfs-new".utf8CString)

    /// Whether a name in the document's directory is the document's.
    @inline(__always)
    public func isNamed(_ text: UnsafePointer<CChar>) -> Bool { name.withUnsafeBufferPointer { strcmp($0.baseAddress!, text) == 0 } }

    /// Whether a name in the document's directory is one that is not shown.
    @inline(__always)
    public static func isReserved(_ text: UnsafePointer<CChar>) -> Bool { strncmp(text, reserved, 9) == 0 }

    /// Where the document is on the host; nil once it was let go of.
    public var entry: Entry? { state.withLock { $0.entry } }

    public var workplace: Held? { state.withLock { $0.workplace } }
    public var file: Held? { state.withLock { $0.file } }

    /// Lets go of every descriptor. Those that are in use are closed when they no longer are.
    public func releaseDescriptors() {
        // Closed outside of the lock.
        let held = state.withLock { state -> [Held?] in
            defer { (state.entry, state.workplace, state.file) = (nil, nil, nil) }
            return [state.entry?.directory, state.workplace, state.file]
        }
        withExtendedLifetime(held) {}
    }

    /// Where the document that the scope shows is; nil when it shows none just now.
    public var shown: Entry? {
        state.withLock { state in
            if state.staged != nil, let workplace = state.workplace { return Entry(workplace, Self.stagedName) }
            return state.isAway ? nil : state.entry
        }
    }

    public var isAway: Bool { state.withLock { $0.isAway } }
    public var isStaged: Bool { state.withLock { $0.staged != nil } }
    public var key: NodeKey { state.withLock { $0.key } }
    /// Whether that file is the document, or is just becoming it through the scope.
    public func isKnown(_ key: NodeKey) -> Bool { state.withLock { $0.key == key || $0.coming == key } }
    /// That file is about to be put in the document's place; nil: it was, or was not.
    public func expect(_ key: NodeKey?) { state.withLock { $0.coming = key } }
    public var owner: UInt32 { state.withLock { $0.owner } }
    /// How often another file has taken the document's place, and whether the last one did so through the scope.
    public var changes: (count: UInt64, isOurs: Bool) { state.withLock { ($0.changes, $0.isOurs) } }

    /// Whether `key` is the file that the program writes to put it in the document's place.
    public func isStaged(_ key: NodeKey) -> Bool { state.withLock { $0.staged == key } }

    /// The program has moved the document away: until it makes another one, it sees none.
    public func leave(by maker: Maker?) {
        state.withLock { state in
            state.isAway = true
            state.staged = nil
            state.leaver = (maker, Clock.monotonic)
        }
    }

    /// Shows the document again that a program has moved away, if that has ended without putting another one in its place: `patience` nanoseconds ago, since
    /// what a shell runs consists of several.
    ///
    /// `isOpen`: whether somebody has a file open: he may yet close the new one.
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

    /// The program that wrote a new document was killed: the old one is shown again.
    public func abandon(_ key: NodeKey) {
        state.withLock { state in
            guard state.staged == key else { return }
            state.isAway = false
            state.staged = nil
        }
    }

    /// What lies beside the document and has a maker that is known.
    public var madeKeys: Set<NodeKey> { state.withLock { Set($0.makers.keys) } }

    /// Who made these is forgotten: they are gone.
    public func forget(_ keys: Set<NodeKey>) { state.withLock { state in for key in keys { state.makers[key] = nil } } }

    /// Somebody has made something beside the document.
    public func recordMaker(_ key: NodeKey, by maker: Maker?) {
        guard let maker else { return }
        state.withLock { $0.makers[key] = maker }
    }

    /// Who made it; nil where that is not known.
    public func maker(of key: NodeKey) -> Maker? { state.withLock { $0.makers[key] } }
    public func forget(_ key: NodeKey) { state.withLock { $0.makers[key] = nil } }

    /// The program has begun a new document.
    public func stage(_ key: NodeKey) { state.withLock { $0.staged = key } }

    /// The program has removed what it had begun.
    public func unstage() { state.withLock { $0.staged = nil } }

    /// Another file has taken the document's place on the host.
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

    /// The document was found at another place of the host.
    public func move(to entry: Entry) {
        let old = state.withLock { state -> Entry? in
            guard state.entry != nil else { return entry }
            defer { state.entry = entry }
            return state.entry
        }
        withExtendedLifetime(old) {}
    }

    /// Of a scope that shows a file: the node that its name leads to. Returns the one before, which is no longer counted.
    public func show(_ id: UInt64, _ status: FileStatus) -> UInt64? {
        state.withLock { state in
            defer { state.node = (id, status) }
            return state.node?.id
        }
    }

    /// Of a scope that shows a file: its node, and how it was.
    public var node: (id: UInt64, status: FileStatus)? { state.withLock { $0.node } }
}
