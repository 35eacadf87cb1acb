import GrantCommandLine
import GrantCommandSupport
import GrantConsoles
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem
import GrantTerminal

/// `grantfs top`
enum TopCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let work = try work(arguments)
        let delay = try arguments.delay()
        _ = try arguments.knownView(in: try arguments.openStoreIfThere())
        guard Screen.isAvailable else {
            var top = Top(delay: delay)
            top.handle(.seen(try work.look()))
            usleep(UInt32(delay * 1e6))
            top.handle(.seen(try work.look()))
            try Terminal.print(top.text())
            return 0
        }
        let session = try LiveSession(Top(delay: delay), delay: delay, work: work)
        let screen = try Screen()
        try session.run(on: screen)
        screen.close()
        return 0
    }

    private static func work(_ arguments: ParsedArguments) throws(GrantError) -> LiveSession<Top>.Work {
        let view = try arguments.view()
        let timeout = try arguments.timeout()
        return LiveSession<Top>.Work(
            look: { () throws(GrantError) in
                guard let store = try arguments.openStoreIfThere() else { return TopSnapshot(time: Clock.monotonic, sections: []) }
                let mounts = try GrantAdministrator(store: store).status(view: view, timeout: 1, counting: true)
                return TopSnapshot(
                    time: Clock.monotonic, now: Instant(nanoseconds: Clock.realtime), grants: try store.grants(view: view), mounts: mounts)
            },
            act: { action throws(GrantError) in
                if case .unmount(let mountpoint) = action {
                    let place = try Mountpoint(mountpoint)
                    guard try place.mounted()?.type == GrantAdministrator.filesystemType else {
                        throw GrantError(.mountFailed, "\(place.shown) cannot be unmounted", cause: "no view is mounted there")
                    }
                    try place.unmount()
                    return "unmounted \(Terminal.visible(mountpoint))"
                }
                let store = try arguments.openStore()
                return try change(action, GrantAdministrator.command(store), timeout)
            })
    }

    private static func change(_ action: Top.Action, _ administrator: GrantAdministrator, _ timeout: Double) throws(GrantError) -> String {
        let (change, verb): (GrantChange, String)
        switch action {
        case .revoke(let id): (change, verb) = (try administrator.revoke([try grant(id, administrator)], timeout: timeout)[0], "revoked")
        case .restore(let id): (change, verb) = (try administrator.restore([try grant(id, administrator)], timeout: timeout)[0], "restored")
        case .set(let id, let access):
            change = try administrator.set(try grant(id, administrator), access: access, name: nil, expires: nil, timeout: timeout)
            verb = "made \(access.rawValue)"
        case .unmount: return ""
        }
        let silent = change.mounts.filter { !$0.confirmed }.map { String(decoding: $0.mountpoint, as: UTF8.self) }
        if !silent.isEmpty {
            return "\(verb) “\(change.grant.name)” on record, but not confirmed by \(silent.joined(separator: ", "))"
        }
        let count = change.mounts.count
        return "\(verb) “\(change.grant.name)”" + (count == 0 ? "" : ", confirmed by \(count == 1 ? "1 mount" : "\(count) mounts")")
    }

    private static func grant(_ id: GrantID, _ administrator: GrantAdministrator) throws(GrantError) -> Grant {
        guard let grant = try administrator.store.grant(id) else {
            throw GrantError(.notFound, "nothing was changed", cause: "the grant no longer exists")
        }
        return grant
    }
}
