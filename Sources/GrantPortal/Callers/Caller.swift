import Glibc
import GrantSystem

/// Who makes a call, as the kernel knows him at this moment. Nothing of it is kept for the next call.
struct Caller: Sendable {
    /// The name of the connection.
    let name: String
    let pid: Int32
    /// The application in whose sandbox the process is; nil for the owner.
    let app: String?
    /// Flatpak's number of the run of the application, where it has one.
    var instance: String? = nil

    var isOwner: Bool { app == nil }
}

/// Finds out who calls.
///
/// The bus knows the process by a number. A process that is held by a pidfd while it is looked at cannot be another one with that number; and that it is the caller is
/// asked once more when it is held.
struct CallerIdentification: Sendable {
    let bus: BusClient

    /// `.notAllowed` when it cannot be told: whoever is not known to be outside of a sandbox is not.
    func identify(_ name: String) throws(PortalError) -> Caller {
        let first = try credentials(of: name)
        do throws(Errno) {
            let process = try ProcessHandle(first.pid)
            let second = try? credentials(of: name)
            guard second?.pid == first.pid else { throw Errno(ESRCH) }
            let sandbox = try SandboxInfo.sandbox(of: first.pid)
            guard !process.hasEnded else { throw Errno(ESRCH) }
            return Caller(name: name, pid: first.pid, app: sandbox?.app, instance: sandbox?.instance)
        } catch {
            throw PortalError(.notAllowed, "Unable to tell who calls: \(error)")
        }
    }

    private func credentials(of name: String) throws(PortalError) -> (pid: Int32, user: UInt32) {
        let answer: BusValue?
        do throws(BusError) {
            answer =
                try bus.call(
                    "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "GetConnectionCredentials", "s", [.text(name)]
                ).first
        } catch {
            throw PortalError(.notAllowed, "Unable to tell who calls: \(error.text)")
        }
        guard let pid = answer?.option("ProcessID")?.unsigned.flatMap({ Int32(exactly: $0) }), pid > 0,
            let user = answer?.option("UnixUserID")?.unsigned.flatMap({ UInt32(exactly: $0) })
        else { throw PortalError(.notAllowed, "Unable to tell who calls: the bus does not say it") }
        // Root may do everything anyway.
        guard user == geteuid() || user == 0 else { throw PortalError(.notAllowed, "Documents are their owner's alone") }
        return (pid, user)
    }
}
