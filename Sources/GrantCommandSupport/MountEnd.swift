import GrantAdministration
import GrantStore
import GrantSystem

/// The end of mounts that were unmounted.
package enum MountEnd {
    /// Waits for the daemon, which ends as soon as it notices, so that the caller can mount again or remove the store at once. Returns who
    /// has the mount in another mount namespace, so that the daemon goes on, if `looksElsewhere`.
    @discardableResult
    package static func wait(for records: [MountRecord], looksElsewhere: Bool = false) -> [Holder] {
        let deadline = Clock.monotonic + 2_000_000_000
        var elsewhere: [Holder] = []
        for record in records {
            // Opened before the check, so that the checked process is the one waited for.
            guard let process = try? ProcessHandle(record.pid) else { continue }
            var isLookedFor = !looksElsewhere
            // A defunct daemon counts as ended too.
            while record.process.isRunning, Clock.monotonic < deadline, !process.hasEnded(within: 100) {
                guard !isLookedFor, let device = record.connection?.device else { continue }
                isLookedFor = true
                // If it is mounted here again, or nowhere at all, the daemon ends, or goes on for a
                // reason that its user knows.
                guard let table = try? MountTable.current(), !table.has(device) else { continue }
                let holders = Holder.ofMount(device, until: deadline)
                elsewhere += holders
                if !holders.isEmpty { break }
            }
        }
        return elsewhere
    }
}
