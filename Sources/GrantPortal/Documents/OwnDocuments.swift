import Glibc
import GrantSystem

/// The ids of documents that this program has taken over, or has written into the permission store itself: a file beside the store of grants.
///
/// A document among them without a grant was removed, and its entry in the permission store must be
/// deleted. Only documents not among them existed before this program, and are taken over.
///
/// Locking: one lock around the ids and the file.
final class OwnDocuments: Sendable {
    private struct State {
        var ids: Set<String> = []
        /// How many lines the file has.
        var lines = 0
    }

    private let directory: String
    private let state = Lock(State())
    private var file: String { directory + "/documents" }
    /// With more lines, the file is written again with the existing ids, if it has more than two
    /// lines for each id.
    private static let mostLines = 65_536

    /// `directory`: of the store of grants.
    init(in directory: String) { self.directory = directory }

    func contains(_ id: String) -> Bool { state.withLock { $0.ids.contains(id) } }

    /// Reads the ids from the file. There are none if there is no file yet.
    func read() throws(Errno) {
        try state.withLock { (state) throws(Errno) in
            var bytes: [UInt8] = []
            do throws(Errno) {
                bytes = try File.contents(of: Array(file.utf8))
            } catch {
                guard error.rawValue == ENOENT else { throw error }
            }
            let lines = bytes.split(separator: UInt8(ascii: "\n"))
            state.lines = lines.count
            for line in lines {
                // A line without its end was cut off while it was written.
                let id = String(decoding: line.dropLast(), as: UTF8.self)
                if line.last == UInt8(ascii: ";"), DocumentNames.isStoredID(id) { state.ids.insert(id) }
            }
        }
    }

    /// On disk when it returns.
    func add(_ ids: Set<String>) throws(Errno) {
        try state.withLock { (state) throws(Errno) in
            let new = ids.subtracting(state.ids)
            guard !new.isEmpty else { return }
            if state.lines + new.count > Self.mostLines, state.lines > 2 * state.ids.count {
                let all = state.ids.union(new)
                try replace(with: all)
                (state.ids, state.lines) = (all, all.count)
                return
            }
            let isNew = access(file, F_OK) != 0
            let descriptor = try FileDescriptor.open(file.utf8, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, mode: 0o600)
            // After an empty line, because the last one may have been cut off.
            try Self.write("\n" + Self.text(new), to: descriptor)
            if isNew { try File.keepNames(in: directory) }
            state.ids.formUnion(new)
            state.lines += new.count
        }
    }

    /// The permission store has forgotten it permanently. The file may still have it, which does no
    /// harm.
    func forget(_ id: String) { state.withLock { _ = $0.ids.remove(id) } }

    private func replace(with ids: Set<String>) throws(Errno) {
        try File.replace(file, with: Array(Self.text(ids).utf8))
    }

    private static func text(_ ids: Set<String>) -> String { ids.sorted().map { "\($0);\n" }.joined() }

    private static func write(_ text: String, to descriptor: borrowing FileDescriptor) throws(Errno) {
        let bytes = Array(text.utf8)
        let count = Glibc.write(descriptor.number, bytes, bytes.count)
        if count != bytes.count { throw Errno(count < 0 ? errno : ENOSPC) }
        if fsync(descriptor.number) != 0 { throw Errno(errno) }
    }
}
