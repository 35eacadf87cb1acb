import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs unmount`
enum UnmountCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let mountpoint = try place(arguments)
        guard let entry = try mountpoint.mounted(), entry.type == GrantAdministrator.filesystemType else {
            throw refusal(arguments, mountpoint.shown, cause: "no view is mounted there")
        }
        let store = try? arguments.openStoreIfThere()
        let records = try? store?.mounts().filter { record in
            // An earlier mount that was detached here and is still held does not end now.
            record.mountpoint == mountpoint.path && record.connection.map { $0.device == entry.device } ?? true
        }
        let kept = store.map { KeptFilesReport($0) }
        if let store { for record in records ?? [] { record.abortIfDefunct(in: store) } }
        var below: [MountRecord] = []
        if let store, let above = records?.last(where: \.shown.hasMountpoints) {
            // A mount inside it may come back before it is unmounted itself.
            for _ in 0..<3 {
                below = try unmountViews(of: above, store)
                if (try? mountpoint.unmount()) != nil { break }
            }
        }
        if try mountpoint.mounted()?.device == entry.device { try mountpoint.unmount() }
        let elsewhere = MountEnd.wait(for: (records ?? []) + below, looksElsewhere: true)
        kept?.print()
        for holder in elsewhere {
            let name = Terminal.visible(holder.command)
            let place = holder.paths.first.map { ShellWord.quoted($0) } ?? mountpoint.shown
            // The note names no command that enters that namespace, because its programs may be any
            // user's.
            Terminal.note(
                "still mounted in another mount namespace, that of process \(holder.pid) (\(name)), at \(place): its "
                    + "programs still reach the grants until that namespace ends (grantfs revoke withdraws them there too)")
        }
        return 0
    }

    /// Unmounts the views that are mounted on the mountpoints of the mount `above`, and returns
    /// their records. Throws `.mountFailed` for the first that is busy.
    private static func unmountViews(of above: MountRecord, _ store: GrantStore) throws(GrantError) -> [MountRecord] {
        let below = try store.mounts().filter { record in
            let name = record.shown.onlyView.flatMap { above.shown.mountpoint(of: $0) }
            return name.map { CanonicalPath.join(above.mountpoint, $0.bytes) == record.mountpoint } ?? false
        }
        for record in below {
            record.abortIfDefunct(in: store)
            let mountpoint = Mountpoint(canonical: record.mountpoint)
            if try mountpoint.mounted()?.type == GrantAdministrator.filesystemType { try mountpoint.unmount() }
        }
        return below
    }

    private static func place(_ arguments: ParsedArguments) throws(GrantError) -> Mountpoint {
        do {
            return try Mountpoint(arguments.operands[0])
        } catch {
            throw refusal(arguments, String(decoding: arguments.operands[0], as: UTF8.self), cause: error.cause)
        }
    }

    /// A view's name was given: suggests one of its mounts.
    private static func refusal(_ arguments: ParsedArguments, _ shown: String, cause: String?) -> GrantError {
        let word = arguments.operands[0]
        let mounts = (try? arguments.openStoreIfThere()?.mounts()) ?? []
        let places = mounts.filter { Array($0.view.description.utf8) == word }.map { ShellWord.quoted($0.mountpoint) }
        let all = Set(mounts.map { ShellWord.quoted($0.mountpoint) }).sorted()
        let advice =
            !places.isEmpty
            ? "that view is mounted at \(places.joined(separator: " and "))"
            : UnexpandedHome.advice(for: word) ?? (all.isEmpty ? nil : "mounted are \(all.joined(separator: ", "))")
        return GrantError(.mountFailed, "\(shown) cannot be unmounted", cause: cause, advice: advice)
    }
}
