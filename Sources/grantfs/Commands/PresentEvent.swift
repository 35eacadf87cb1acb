import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel

/// A question or notice, as `grantfs present` prints it and passes it to commands.
struct PresentEvent: Sendable {
    let name: String
    /// The path it is about.
    let item: [UInt8]
    var newPath: [UInt8]?
    /// The claimant's pid.
    var pid: Int32?
    /// The time to answer, or until the grant is revoked.
    var seconds: Double?

    init(_ name: String, item: [UInt8], newPath: [UInt8]? = nil) { (self.name, self.item, self.newPath) = (name, item, newPath) }

    /// Returns the event, and the option with its command.
    static func of(_ request: PresenterRequest) -> (PresentEvent, hook: String) {
        let (name, hook) =
            switch request.question {
            case .relinquishToReader: ("relinquishToReader", "relinquish")
            case .relinquishToWriter: ("relinquishToWriter", "relinquish")
            case .save: ("save", "save")
            case .accommodateDeletion: ("accommodateDeletion", "delete")
            case .revocation: ("revocation", "revoke")
            }
        var event = PresentEvent(name, item: request.path)
        if request.claimantPID > 0 { event.pid = request.claimantPID }
        event.seconds = request.seconds
        return (event, hook)
    }

    /// `path`: the presented item's.
    static func of(_ notice: PresenterNotice, _ path: [UInt8]) -> (PresentEvent, hook: String?) {
        switch notice {
        case .reacquired: (PresentEvent("reacquired", item: path), "reacquire")
        case .moved(let place): (PresentEvent("moved", item: path, newPath: place), "change")
        case .changed: (PresentEvent("changed", item: path), "change")
        case .subitemAppeared(let item): (PresentEvent("subitemAppeared", item: item), "change")
        case .subitemChanged(let item): (PresentEvent("subitemChanged", item: item), "change")
        case .subitemRemoved(let item): (PresentEvent("subitemRemoved", item: item), "change")
        case .subitemMoved(let item, let place): (PresentEvent("subitemMoved", item: item, newPath: place), "change")
        case .missed: (PresentEvent("missed", item: path), "change")
        case .restored: (PresentEvent("restored", item: path), "change")
        case .released: (PresentEvent("released", item: path), "release")
        case .lostDaemon: (PresentEvent("lostDaemon", item: path), nil)
        }
    }

    var json: [(String, JSON)] {
        [("event", .string(name))] + JSON.members("path", item) + (newPath.map { JSON.members("newPath", $0) } ?? [("newPath", .null)])
            + [("pid", pid.map { .integer(Int64($0)) } ?? .null), ("seconds", seconds.map { .number($0) } ?? .null)]
    }

    var line: String {
        var text = "\(name) \(Terminal.visible(item))"
        if let newPath { text += " to \(Terminal.visible(newPath))" }
        if let pid { text += " for process \(pid)" }
        return text
    }

    /// `NAME=VALUE`, for the command's environment.
    func variables(path: [UInt8]) -> [[UInt8]] {
        var result: [(String, [UInt8])] = [("EVENT", Array(name.utf8)), ("PATH", path), ("ITEM", item)]
        if let newPath { result.append(("NEW_PATH", newPath)) }
        if let pid { result.append(("PID", Array(String(pid).utf8))) }
        if let seconds { result.append(("SECONDS", Array(String(seconds).utf8))) }
        return result.map { Array("GRANTFS_\($0.0)=".utf8) + $0.1 }
    }
}
