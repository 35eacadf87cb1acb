import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// Checks the store, its grants and its mounts.
enum StoreChecks {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> [Finding] {
        let directory = try arguments.storeDirectory()
        let store: GrantStore
        do {
            guard let opened = try arguments.openStoreIfThere() else { return [.ok("store", "there is no store in \(directory) yet")] }
            store = opened
        } catch {
            return [.problem("store", error.description, error.advice ?? "restore it from a backup, or choose another with --store")]
        }
        var findings = [space(directory)]
        do {
            let administrator = GrantAdministrator.command(store)
            let active = try administrator.list()
            findings += grants(active)
            findings += policy(administrator, active)
            findings += try mounts(administrator)
        } catch {
            findings.append(.problem("store", error.description, error.advice ?? "restore it from a backup"))
        }
        return findings
    }

    /// A revocation that cannot be written does not last.
    private static func space(_ directory: String) -> Finding {
        var filesystem = statvfs()
        guard statvfs(directory, &filesystem) == 0 else {
            return .problem("store", "the store \(directory) cannot be inspected: \(Errno(errno))", "look at its filesystem")
        }
        if filesystem.f_flag & UInt(ST_RDONLY) != 0 {
            return .problem(
                "store", "the store \(directory) is on a read-only filesystem: nothing can be revoked for good", "mount it read-write")
        }
        let free = UInt64(filesystem.f_bavail) * UInt64(filesystem.f_frsize)
        if free < 16 << 20 {
            return .problem(
                "store", "the filesystem of the store \(directory) has \(free >> 20) MiB left: revocations may not be recorded",
                "make room there")
        }
        return .ok("store", "the store \(directory) is sound")
    }

    private static func grants(_ grants: [GrantDescription]) -> [Finding] {
        let findings = grants.compactMap { grant -> Finding? in
            let name = "the grant “\(grant.grant.name)” in view “\(grant.grant.view)”"
            let path = String(decoding: grant.path, as: UTF8.self)
            switch grant.finding {
            case .ok, .moved: return nil
            case .weak: return .note("grants", "\(name) is on a filesystem without lasting handles: \(path)")
            case .unavailable:
                let why = grant.isUnresponsive ? "whose filesystem does not answer" : "whose filesystem is not mounted"
                return .note(
                    "grants", "\(name) is of a directory \(why): \(path)", "it returns with it, or grantfs revoke withdraws it")
            case .replaced:
                return .problem(
                    "grants", "\(name) leads to another directory than its own: \(path)",
                    "grantfs repair --confirm accepts it, grantfs remove forgets the grant")
            case .missing:
                return .problem(
                    "grants", "\(name) is of a directory that is nowhere: \(path)",
                    "grantfs repair shows the remedy, and grantfs remove forgets it")
            case .ambiguous:
                return .problem("grants", "\(name) could be one of several directories: \(path)", "unmount or remove all copies but one")
            }
        }
        return findings.isEmpty
            ? [.ok("grants", "\(grants.count) active \(grants.count == 1 ? "grant" : "grants"), each with its directory")] : findings
    }

    /// A grant stays active when the administrator forbids it later. A user has to revoke it.
    private static func policy(_ administrator: GrantAdministrator, _ grants: [GrantDescription]) -> [Finding] {
        do throws(GrantError) {
            let forbidden = try administrator.forbidden(among: grants)
            let flaws = try PolicyFiles.read()?.flaws ?? []
            return flaws.map { .problem("policy", "\($0.description): that rule allows nothing", "root mends it: grantfs policy check") }
                + grants.compactMap { grant in
                    forbidden[grant.grant.id].map { verdict in
                        .note(
                            "policy",
                            "the grant “\(grant.grant.name)” in view “\(grant.grant.view)” could not be made any more: \(verdict.reason)",
                            "grantfs revoke takes it away")
                    }
                }
        } catch {
            return [.problem("policy", error.description, error.advice ?? "grantfs policy check shows the fault")]
        }
    }

    private static func mounts(_ administrator: GrantAdministrator) throws(GrantError) -> [Finding] {
        var findings: [Finding] = []
        let reports = try administrator.status()
        for report in reports {
            guard let unresponsiveReason = report.unresponsiveReason else { continue }
            let place = String(decoding: report.record.mountpoint, as: UTF8.self)
            findings.append(
                .problem(
                    "mounts", "the mount at \(place) does not answer: \(unresponsiveReason)",
                    "if it stays so: kill \(report.record.pid), and mount it again"))
        }
        for report in reports where ViewMountsLock.isAbandoned(report.record, in: administrator.store) {
            let place = String(decoding: report.record.mountpoint, as: UTF8.self)
            findings.append(
                .problem(
                    "mounts", "no process mounts views at \(place) any more: the one behind grantfs mount --views has died",
                    "unmount \(place), and mount it again"))
        }
        let dead = try administrator.deadMounts()
        for report in reports where report.isDead && !dead.contains(report.record.mountpoint) {
            let place = String(decoding: report.record.mountpoint, as: UTF8.self)
            findings.append(
                .problem(
                    "mounts", "the rest of a dead mount, which was at \(place), is held: its daemon has ended",
                    "grantfs status names the holders, and grantfs revoke --kill ends them"))
        }
        for place in dead {
            let shown = String(decoding: place, as: UTF8.self)
            findings.append(
                .problem(
                    "mounts", "the mount at \(shown) is dead: its daemon has ended", "mount the view there again, or umount -l \(shown)"))
        }
        return findings.isEmpty ? [.ok("mounts", "\(reports.count) \(reports.count == 1 ? "mount" : "mounts"), alive")] : findings
    }
}
