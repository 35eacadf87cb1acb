import CGrantSystem
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import GrantViewFS

/// A view that is served without a mount. Requests go in as the kernel would write them, and
/// replies come out.
final class Served {
    private let view: ViewFS
    private let session: Session
    private let answers: Answers
    private let directory: String
    private let message = UnsafeMutableRawPointer.allocate(byteCount: Worker.bufferSize + 4096, alignment: 4096)
    private var scope: Scope?
    private var activation: Int64 = 0
    private var last: UInt64 = 1
    private(set) var count = 0

    /// `directory`: an empty directory, which is granted.
    init(_ cache: CacheMode, _ directory: String) throws {
        self.directory = directory
        var ends: [Int32] = [-1, -1]
        guard socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0, &ends) == 0 else { throw Errno(errno) }
        var size: Int32 = 4 << 20
        for option in [SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_SNDBUF, SO_RCVBUF] {
            setsockopt(ends[0], SOL_SOCKET, option, &size, 4)
            setsockopt(ends[1], SOL_SOCKET, option, &size, 4)
        }
        view = ViewFS(cache: cache, descriptorLimit: 64, holdsOpenings: false)
        session = try view.beginUnmounted(exchange: ends[0])
        answers = Answers(ends[1])
        message.initializeMemory(as: UInt8.self, repeating: 0, count: Worker.bufferSize + 4096)
        var requests = Requests()
        // struct fuse_init_in: all flags, protocol 7.39.
        var begin = Writing(opcode: 26, unique: 1, node: 0, uid: 0, gid: 0, pid: 0)
        for word in [7, 39, 1 << 20, 0x7FFF_FFFF, 0x7F] as [UInt32] { begin.put(word) }
        begin.put(bytes: [UInt8](repeating: 0, count: 44))
        give(1, 26, begin.finished(), &requests)
    }

    private func give(_ unique: UInt64, _ opcode: UInt32, _ bytes: [UInt8], _ requests: inout Requests) {
        // The buffer keeps the bytes of an earlier, longer message after this one. The session must
        // not read them.
        bytes.withUnsafeBytes { message.copyMemory(from: $0.baseAddress!, byteCount: $0.count) }
        answers.expect(unique, opcode)
        session.serve(message: message, count: bytes.count)
        answers.take(&requests)
        count += 1
    }

    /// Serves the requests that the bytes choose on a new grant of the directory, and revokes that
    /// grant.
    func run(_ choices: inout Choices) throws {
        try begin()
        var requests = Requests()
        // The first requests of nearly every program.
        // A request number is never used twice, as in the kernel.
        requests.begin(at: last)
        let unique = requests.number()
        var lookup = Writing(opcode: 1, unique: unique, node: 1, uid: 0, gid: 0, pid: 0)
        lookup.put(name: Array("grant".utf8))
        give(unique, 1, lookup.finished(), &requests)
        var number = 0
        while !choices.isOver {
            let next = requests.next(&choices)
            give(next.unique, next.opcode, next.bytes, &requests)
            number += 1
            // Revokes the grant in the middle, now and then.
            if let scope, number % 512 == 0 { _ = view.finish(scope, .writing, patience: 10) }
        }
        try end(&requests)
        last = requests.number()
    }

    private func begin() throws {
        activation += 1
        let made = try view.makeScope(
            for: GrantID(high: 0, low: 1), activation: activation, readOnly: false,
            directory: try FileDescriptor.open(directory.utf8, OpenFlags.path | O_DIRECTORY), crossesMounts: false)
        view.names.set(ShownPath(try GrantName(entry: Array("grant".utf8))), .open(made))
        scope = made
    }

    private func end(_ requests: inout Requests) throws {
        guard let scope else { return }
        view.names.set(ShownPath(try GrantName(entry: Array("grant".utf8))), nil)
        view.shut(scope, .all)
        _ = view.finish(scope, .all, patience: 100)
        // Requests that waited for a lock have been refused, but their replies may still be on the
        // way.
        for _ in 0..<2000 where !answers.waiting.isEmpty {
            answers.take(&requests)
            usleep(1000)
        }
        guard answers.waiting.isEmpty else { fatalError("not answered: \(answers.waiting)") }
        for file in requests.files { close(file, &requests) }
        for _ in 0..<4 where !view.reap(scope) { usleep(100) }
        view.trim()
        empty()
        self.scope = nil
    }

    /// Sends RELEASE and RELEASEDIR, of which one is right.
    private func close(_ file: UInt64, _ requests: inout Requests) {
        for kind in [18, 29] as [UInt32] {
            let unique = requests.number()
            var message = Writing(opcode: kind, unique: unique, node: 1, uid: 0, gid: 0, pid: 0)
            message.put(file)
            message.put(bytes: [UInt8](repeating: 0, count: 16))
            give(unique, kind, message.finished(), &requests)
        }
    }

    private func empty() {
        guard let stream = opendir(directory) else { return }
        defer { closedir(stream) }
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name == "." || name == ".." { continue }
            remove(dirfd(stream), name)
        }
    }

    private func remove(_ directory: Int32, _ name: String) {
        if unlinkat(directory, name, 0) == 0 { return }
        if unlinkat(directory, name, AT_REMOVEDIR) == 0 { return }
        let inside = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard inside >= 0, let stream = fdopendir(inside) else { return }
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name != ".", name != ".." { remove(inside, name) }
        }
        closedir(stream)
        _ = unlinkat(directory, name, AT_REMOVEDIR)
    }
}
