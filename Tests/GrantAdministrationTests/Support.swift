import GrantControl
import Foundation
import GrantModel
import GrantStore
import GrantSystem

@testable import GrantAdministration
@testable import GrantMounts

/// A store and directories of its own, removed at the end.
final class Bench {
    let root: String
    let store: GrantStore
    let administrator: GrantAdministrator

    init() throws {
        let made = NSTemporaryDirectory() + "/grantfs-kit-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: made, withIntermediateDirectories: true)
        root = String(decoding: try CanonicalPath.resolve(Array(made.utf8)), as: UTF8.self)
        store = try GrantStore(directory: root + "/store", create: true)
        administrator = GrantAdministrator(store: store)
    }

    deinit { try? FileManager.default.removeItem(atPath: root) }

    func directory(_ name: String) throws -> String {
        try FileManager.default.createDirectory(atPath: root + "/" + name, withIntermediateDirectories: true)
        return root + "/" + name
    }

    @discardableResult
    func grant(_ name: String, as chosen: String? = nil, view: String = "default", expires: Instant? = nil) throws -> Grant {
        let proposal = try GrantAdministrator.propose(
            directory: Array(try directory(name).utf8), name: try chosen.map { try GrantName(chosen: Array($0.utf8)) },
            store: store.directory)
        return try administrator.grant(proposal, view: try ViewName(view), access: .readWrite, expires: expires).grant
    }

    func selector(_ text: String) throws -> Selector { try Selector(Array(text.utf8)) }

    /// Records a mount as a daemon with this process does.
    func register(view: String = "default", socket: String, process: ProcessIdentity? = .own) throws -> MountRecord {
        guard let process else { throw Errno(ESRCH) }
        let record = MountRecord(
            id: .random(), shown: .one(try ViewName(view)), mountpoint: Array("\(root)/mnt-\(socket)".utf8), pid: process.pid,
            processStart: process.start, bootID: process.bootID, socket: socket, since: Instant(seconds: Int64(try store.mounts().count)))
        try store.register(record)
        return record
    }
}

/// Confirms everything, and remembers what it was asked.
final class Confirming: ControlHandler {
    let asked = Lock<[ControlRequest]>([])
    let confirms: Bool

    init(confirms: Bool = true) { self.confirms = confirms }

    func handle(_ request: ControlRequest, peer: Peer) -> ControlReply {
        asked.withLock { $0.append(request) }
        guard case .apply(let grants, _) = request else { return .done }
        return .applied(grants.map { GrantOutcome(grant: $0, confirmed: confirms, milliseconds: 1, drained: 2) })
    }
}
