import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

// Writes the tables of a crashed daemon for `NodeTree.takeOver`, `OpenFiles.takeOver` and
// `OpenDirectories.takeOver`. Memory behind pointers in the tables is gone.

extension MappedChunks where Element: ~Copyable {
    /// Does the same as `SlotTable.handOverIDs`.
    ///
    /// Throws EPROTO if a chunk is missing. The daemon then died while it returned a chunk to the
    /// kernel, and the ids in it are unknown.
    func handOverIDs(lists: Int, to state: inout HandoverWriter) throws(Errno) {
        state.put(UInt32(truncatingIfNeeded: ChunkHead.cells))
        state.put(UInt32(truncatingIfNeeded: lists))
        let places = places
        for list in 0..<lists {
            let own = places.filter { $0 % lists == list }.map { $0 / lists }
            guard own.elementsEqual(0..<own.count) else { throw Errno(EPROTO) }
        }
        state.put(UInt64(truncatingIfNeeded: places.count))
        for place in places {
            state.put(UInt32(truncatingIfNeeded: place))
            state.put(ChunkHead.highest(in: chunk(place)))
            state.put(flag: true)
            state.put(bytes: UnsafeRawBufferPointer(start: chunk(place), count: ChunkHead.generationBytes))
        }
    }
}

/// A scope of a crashed daemon.
public struct CrashedScope: Sendable {
    public let scope: UInt32
    /// The handle base's descriptor number in that daemon.
    ///
    /// It is nil if there was none, and in a withdrawn scope.
    public let base: Int32?
    public let opensByHandle: Bool
    public let crossesMounts: Bool
    public let usesCallerGroups: Bool
    public let root: (id: UInt64, key: NodeKey)

    public init(
        scope: UInt32, base: Int32?, opensByHandle: Bool, crossesMounts: Bool, usesCallerGroups: Bool, root: UInt64,
        rootKey: (device: UInt64, inode: UInt64, birth: Int64)
    ) {
        (self.scope, self.base, self.opensByHandle) = (scope, base, opensByHandle)
        (self.crossesMounts, self.usesCallerGroups) = (crossesMounts, usesCallerGroups)
        self.root = (root, NodeKey(device: rootKey.device, inode: rootKey.inode, birth: rootKey.birth))
    }
}

extension NodeTree {
    /// Writes the node tree of a crashed daemon, with its scopes.
    ///
    /// - Parameters:
    ///   - devices: In order of arrival.
    ///   - file: The crashed daemon's node table.
    public static func recover(
        devices: [UInt64], scopes: [CrashedScope], openings: borrowing CrashedOpenFiles, from file: borrowing FileDescriptor,
        to state: inout HandoverWriter
    ) throws(Errno) {
        state.put(UInt64(truncatingIfNeeded: devices.count))
        for (bias, device) in devices.enumerated() {
            state.put(device)
            state.put(UInt64(truncatingIfNeeded: bias))
        }
        let bases = Set(scopes.compactMap(\.base)).sorted()
        state.put(UInt64(truncatingIfNeeded: bases.count))
        for base in bases { state.put(descriptor: base) }
        state.put(UInt64(truncatingIfNeeded: scopes.count))
        for scope in scopes { scope.handOver(to: &state, base: scope.base.flatMap { bases.firstIndex(of: $0) }) }
        let nodes = try MappedChunks<Node>(of: file, withElements: true)
        try nodes.handOverIDs(lists: 1, to: &state)
        let known = Set(scopes.map(\.scope))
        // A scope's nodes are removed before its record.
        let isHandedOver = { (node: UnsafeMutablePointer<Node>) in
            node.pointee.lookups.load(ordering: .relaxed) > 0 && known.contains(node.pointee.scope)
        }
        var count: UInt64 = 0
        nodes.forEach { _, node in if isHandedOver(node) { count += 1 } }
        state.put(count)
        let openers = openings.openers
        nodes.forEach { id, node in
            guard isHandedOver(node) else { return }
            // The counts in the node may include files that were opened and never reported, or
            // released and not closed.
            let counted = openers[id] ?? (0, 0)
            node.pointee.openers.store(counted.all, ordering: .relaxed)
            node.pointee.writers.store(counted.writing, ordering: .relaxed)
            node.pointee.handOver(id, to: &state, hasDied: true)
        }
    }
}

extension CrashedScope {
    /// Does the same as `ScopeNodes.handOver`.
    fileprivate func handOver(to state: inout HandoverWriter, base: Int?) {
        state.put(scope)
        state.put(base.map { UInt32(truncatingIfNeeded: $0) } ?? .max)
        state.put(flag: opensByHandle)
        state.put(flag: crossesMounts)
        state.put(flag: usesCallerGroups)
        // Whether the scope was released, and which directories are watched, is determined again.
        state.put(flag: false)
        state.put(flag: true)
        state.put(0 as UInt8)
        state.put(flag: true)
        state.put(root.id)
        state.put(root.key.device)
        state.put(root.key.inode)
        state.put(root.key.birth)
    }
}

/// The open files and directories of a crashed daemon.
///
/// Files and directories that the kernel has released are omitted.
public struct CrashedOpenFiles: ~Copyable {
    private let files: MappedChunks<OpenFile>
    private let directories: MappedChunks<OpenDirectory>
    /// The ids of the files.
    public private(set) var handles: Set<UInt64> = []
    /// How often each node is open, and how often for writing.
    private(set) var openers: [UInt64: (all: UInt32, writing: UInt32)] = [:]

    public static func read(files: borrowing FileDescriptor, directories: borrowing FileDescriptor) throws(Errno) -> CrashedOpenFiles {
        var left = CrashedOpenFiles(
            try MappedChunks(of: files, withElements: true), try MappedChunks(of: directories, withElements: true))
        left.look()
        return left
    }

    private init(_ files: consuming MappedChunks<OpenFile>, _ directories: consuming MappedChunks<OpenDirectory>) {
        self.files = files
        self.directories = directories
    }

    private mutating func look() {
        var (handles, openers): (Set<UInt64>, [UInt64: (all: UInt32, writing: UInt32)]) = ([], [:])
        files.forEach { id, file in
            if file.pointee.isReleased.load(ordering: .acquiring) { return }
            handles.insert(id)
            let before = openers[file.pointee.node] ?? (0, 0)
            openers[file.pointee.node] = (before.all + 1, before.writing + (file.pointee.canWrite ? 1 : 0))
        }
        directories.forEach { _, directory in
            if directory.pointee.isReleased.load(ordering: .acquiring) { return }
            openers[directory.pointee.node, default: (0, 0)].all += 1
        }
        (self.handles, self.openers) = (handles, openers)
    }

    /// Does the same as `OpenFiles.handOver`.
    public func writeFiles(to state: inout HandoverWriter) throws(Errno) {
        try files.handOverIDs(lists: OpenFiles.lists, to: &state)
        state.put(UInt64(truncatingIfNeeded: handles.count))
        files.forEach { id, file in if handles.contains(id) { file.pointee.handOver(id, to: &state) } }
    }

    /// Does the same as `OpenDirectories.handOver`. The kernel supplies the positions.
    public func writeDirectories(to state: inout HandoverWriter) throws(Errno) {
        try directories.handOverIDs(lists: 1, to: &state)
        var count: UInt64 = 0
        directories.forEach { _, directory in if !directory.pointee.isReleased.load(ordering: .relaxed) { count += 1 } }
        state.put(count)
        directories.forEach { id, directory in
            if directory.pointee.isReleased.load(ordering: .relaxed) { return }
            directory.pointee.handOver(id, to: &state)
            DirectoryStream.unknown.handOver(to: &state)
        }
    }
}
