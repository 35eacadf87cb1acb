import GrantCommandLine
import GrantCommandSupport
import GrantControl
import Glibc
import GrantAdministration
import GrantModel
import GrantStore

/// `grantfs status`
enum StatusCommand {
    /// There may be thousands for which there was no time.
    private static let unseenAtMost = 10

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let timeout = arguments.has("timeout") ? try arguments.timeout() : 2
        let store = try arguments.openStoreIfThere()
        let view = try arguments.knownView(in: store)
        let mounts = try store.map { store throws(GrantError) in
            try GrantAdministrator(store: store).status(view: view, timeout: timeout)
        }
        var reports = mounts ?? []
        let recorded = Dictionary(try (store?.grants() ?? []).map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
        // A mount of several views reports all of them.
        if let view { reports = reports.map { $0.showing { recorded[$0.id].map { $0.view == view } ?? true } } }
        let abandoned = store.map { store in reports.map { ViewMountsLock.isAbandoned($0.record, in: store) } } ?? []
        if arguments.wantsJSON {
            let objects = zip(reports, abandoned).map { JSON.object(json($0, recorded, isAbandoned: $1)) }
            try Terminal.print(JSON.object([("mounts", .array(objects))]).text)
        } else {
            for report in reports { try show(report, recorded) }
            if reports.isEmpty {
                Terminal.note("\(view.map { "the view “\($0)” is not" } ?? "no view is") mounted (grantfs mount VIEW MOUNTPOINT)")
            }
        }
        for report in reports {
            guard let unresponsiveReason = report.unresponsiveReason else { continue }
            Terminal.note(
                "the mount at \(String(decoding: report.record.mountpoint, as: UTF8.self)) does not answer: \(unresponsiveReason)")
        }
        for report in reports where report.isDead {
            let place = String(decoding: report.record.mountpoint, as: UTF8.self)
            Terminal.note(
                "the mount at \(place) is dead: its daemon has ended"
                    + (store.map { report.record.wasSupervised(in: $0.runDirectory) } == true
                        ? " again and again, or none could go on with it (see the system's log)" : "")
                    + ". Processes that hold something of it can still read the kernel's cache "
                    + "(grantfs revoke --kill ends them, mounting the view again or umount -l removes a dead mount)")
        }
        for (report, isAbandoned) in zip(reports, abandoned) where isAbandoned {
            let place = String(decoding: report.record.mountpoint, as: UTF8.self)
            Terminal.note(
                "no process mounts views at \(place) any more: the one behind grantfs mount --views has died "
                    + "(unmount \(place), and mount it again)")
        }
        return reports.contains(where: \.isDead) || abandoned.contains(true) ? 1 : 0
    }

    /// Skips this process: the descriptors inherited from its shell end with it.
    private static func others(_ holders: [Holder]) -> [Holder] { holders.filter { $0.pid != getpid() } }

    private static func json(_ report: MountReport, _ recorded: [GrantID: Grant], isAbandoned: Bool) -> [(String, JSON)] {
        let record = report.record
        let mountsViews = record.shown.hasMountpoints ? JSON.bool(!isAbandoned && !report.isDead) : .null
        return [("view", .string(record.view.description))] + JSON.members("mountpoint", record.mountpoint) + [
            ("pid", .integer(Int64(record.pid))), ("since", JSON.time(record.since)), ("state", .string(report.isDead ? "dead" : "live")),
            ("answers", .bool(report.status != nil)), ("mountsViews", mountsViews),
            ("grants", .array((report.status?.grants ?? []).map { .object(json($0, recorded[$0.id], of: record)) })),
            ("inodes", .unsigned(report.status?.inodes ?? 0)), ("descriptors", .unsigned(report.status?.descriptors ?? 0)),
            ("requests", .object((report.status?.requests ?? []).map { (RequestName.of($0.opcode), .unsigned($0.count)) })),
            ("holders", .array(others(report.holders).map { .object(JSON.holder($0)) })), JSON.unseen(report.unseen),
        ]
    }

    /// A daemon says neither the view of a grant nor when it ends: the store does.
    private static func json(_ grant: GrantStatus, _ recorded: Grant?, of mount: MountRecord) -> [(String, JSON)] {
        let view = recorded?.view ?? mount.shown.onlyView
        return [("id", .string(grant.id.description)), ("view", view.map { .string($0.description) } ?? .null)]
            + JSON.members("name", grant.name.bytes) + [
                ("state", .string(grant.state.rawValue)), ("inodes", .unsigned(grant.inodes)), ("inFlight", .unsigned(grant.inFlight)),
                ("operations", .unsigned(grant.traffic.operations)), ("readBytes", .unsigned(grant.traffic.readBytes)),
                ("writtenBytes", .unsigned(grant.traffic.writtenBytes)), ("expires", JSON.time(recorded?.expires)),
                ("hostChanges", grant.hostChanges.map { .string(name(of: $0)) } ?? .null),
            ] + (grant.path.map { JSON.members("path", $0) } ?? [("path", .null)])
    }

    /// As in JSON.
    private static func name(of means: HostChangeMeans) -> String {
        switch means {
        case .nobody: "nobody"
        case .fanotify: "fanotify"
        case .inotify: "inotify"
        case .notNeeded: "not-needed"
        }
    }

    private static func show(_ report: MountReport, _ recorded: [GrantID: Grant]) throws(GrantError) {
        let record = report.record
        let place = Terminal.visible(record.mountpoint)
        try Terminal.print(
            "\(Terminal.visible(record.view.description)) at \(place), pid \(record.pid), since \(Timestamp.local(record.since))"
                + (report.isDead ? ", dead" : ""))
        if let status = report.status {
            try Terminal.print("  \(status.inodes) inodes, \(status.descriptors) descriptors")
            var table = Table(header: ["  GRANT", "STATE", "EXPIRES", "INODES", "IN FLIGHT", "PATH"])
            for grant in status.grants {
                table.add(
                    [
                        "  "
                            + (record.shown.onlyView == nil
                                ? (recorded[grant.id].map { Terminal.visible($0.view.description) + "/" } ?? "") : "")
                            + Terminal.visible(grant.name.bytes), grant.state.rawValue,
                        recorded[grant.id]?.expires.map { Timestamp.local($0) } ?? "never", String(grant.inodes), String(grant.inFlight),
                        grant.path.map { Terminal.visible($0) } ?? "-",
                    ], ListCommand.shade(grant.state))
            }
            if !status.grants.isEmpty { try Terminal.print(table.text(colour: Terminal.hasColour(Terminal.standardOutput))) }
            for grant in status.grants where grant.hostChanges == .nobody {
                let name = Terminal.visible(grant.name.bytes)
                try Terminal.print("  changes on the host in \(name) are not reported to the mount (see grantfs doctor)")
            }
        }
        for holder in others(report.holders) {
            let kinds = holder.kinds.map(\.rawValue).joined(separator: ", ")
            try Terminal.print("  held by \(holder.pid) \(Terminal.visible(holder.command)) (\(kinds))")
            for path in holder.paths { try Terminal.print("    \(Terminal.visible(path))") }
        }
        for process in report.unseen.prefix(Self.unseenAtMost) {
            let reason = process.wasSkipped ? "there was no time to look at it" : "the kernel does not show it"
            try Terminal.print("  may be held by \(process.pid) \(Terminal.visible(process.command)): \(reason)")
        }
        if report.unseen.count > Self.unseenAtMost {
            try Terminal.print("  may be held by \(report.unseen.count - Self.unseenAtMost) more: --json has all")
        }
    }
}
