import Glibc
import GrantAdministration
import GrantSystem

/// The process that makes a call, as the kernel knows it at this moment. Nothing of it is kept for the next call.
struct Caller: Sendable {
    /// The name of the connection.
    let name: String
    let pid: Int32
    /// The application in whose sandbox the process is, or nil for the owner.
    let app: String?
    /// Flatpak's number of the run of the application, where it has one.
    var instance: String? = nil

    var isOwner: Bool { app == nil }
}

/// Finds out who calls.
///
/// The bus knows the process, by a pidfd or by a number. A process that is held by a pidfd during
/// its inspection cannot be another one with that number. Another process may have got the number
/// after the caller's end. A pidfd of the bus excludes that, or else the time at which the process
/// has begun.
struct CallerIdentification: Sendable {
    let bus: BusClient
    let connections: Connections

    private struct Credentials {
        let pid: Int32
        let user: UInt32
        /// The pidfd of the process that made the connection. It is nil with an older bus.
        let process: GivenDescriptor?
        /// What a security module called that process.
        let label: [UInt8]?
    }

    /// Throws `.notAllowed` when the caller cannot be identified: a process counts as the owner's
    /// only if it is known to be outside of a sandbox. It waits for the bus, and for no file.
    func identify(_ name: String) throws(PortalError) -> Caller {
        let credentials = try credentials(of: name)
        let pid = credentials.pid
        do throws(Errno) {
            let process = try ProcessHandle(pid)
            if let made = credentials.process {
                // As long as that process has not ended no other one has its number.
                guard try ProcessDescriptor.number(of: made.descriptor) == pid, !ProcessDescriptor.hasEnded(made.descriptor) else {
                    throw Errno(ESRCH)
                }
            } else {
                guard try self.credentials(ofAgain: name).pid == pid, let since = connections.time(of: name),
                    let began = ProcessStart.time(of: pid), began <= since
                else { throw Errno(ESRCH) }
            }
            let sandbox = try SandboxInfo.sandbox(of: pid)
            let snap = SnapLabel.together([try SnapLabel.of(pid), credentials.label.map { SnapLabel(label: $0) } ?? .none])
            let app: String?
            switch (sandbox?.app, snap) {
            case (let flatpak?, .none): app = flatpak
            case (nil, .snap(let name)):
                app = "snap.\(name)"
                guard DocumentNames.isApp("snap.\(name)") else { throw Errno(EBADMSG) }
            case (nil, .none):
                // A process in a user namespace of its own may have made a root directory without that file.
                guard try ProcessNamespace.isOwn("user", pid) else { throw Errno(EACCES) }
                app = nil
            default: throw Errno(EBADMSG)
            }
            guard !process.hasEnded else { throw Errno(ESRCH) }
            return Caller(name: name, pid: pid, app: app, instance: sandbox?.instance)
        } catch {
            throw PortalError(.notAllowed, "Unable to identify the caller: \(error)")
        }
    }

    /// Which group the connection is counted in.
    func group(of name: String) -> CallerGroup {
        guard let caller = try? identify(name) else { return .nobody }
        return caller.app.map { .app($0) } ?? .owner
    }

    private func credentials(ofAgain name: String) throws(Errno) -> Credentials {
        do throws(PortalError) { return try credentials(of: name) } catch { throw Errno(ESRCH) }
    }

    private func credentials(of name: String) throws(PortalError) -> Credentials {
        let answer: BusValue?
        do throws(BusError) {
            answer =
                try bus.call(
                    "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "GetConnectionCredentials", "s", [.text(name)]
                ).first
        } catch {
            throw PortalError(.notAllowed, "Unable to identify the caller: \(error.text)")
        }
        guard let pid = answer?.option("ProcessID")?.unsigned.flatMap({ Int32(exactly: $0) }), pid > 0,
            let user = answer?.option("UnixUserID")?.unsigned.flatMap({ UInt32(exactly: $0) })
        else { throw PortalError(.notAllowed, "Unable to identify the caller: the bus does not name it") }
        // Root may do everything anyway.
        guard user == geteuid() || user == 0 else { throw PortalError(.notAllowed, "Documents are their owner's alone") }
        return Credentials(
            pid: pid, user: user, process: answer?.option("ProcessFD")?.descriptor, label: answer?.option("LinuxSecurityLabel")?.bytes)
    }
}

/// A pidfd that came from the bus.
enum ProcessDescriptor {
    /// The number of its process, as this process sees it. ESRCH when it has ended, or is in none of the namespaces that this one sees.
    static func number(of descriptor: borrowing FileDescriptor) throws(Errno) -> Int32 {
        guard let pid = number(in: try File.contents(of: "/proc/self/fdinfo/\(descriptor.number)".utf8)) else { throw Errno(ESRCH) }
        return pid
    }

    /// Returns the number in the line `Pid:` of its fdinfo. 0 and -1 mean no process.
    static func number(in text: [UInt8]) -> Int32? {
        let lines = text.split(separator: 0x0A).filter { $0.starts(with: "Pid:".utf8) }
        guard let line = lines.only else { return nil }
        return Int32(String(decoding: line.dropFirst(4).drop { $0 == 0x09 || $0 == 0x20 }, as: UTF8.self)).flatMap { $0 > 0 ? $0 : nil }
    }

    static func hasEnded(_ descriptor: borrowing FileDescriptor) -> Bool {
        var request = pollfd(fd: descriptor.number, events: Int16(POLLIN), revents: 0)
        return poll(&request, 1, 0) != 0
    }
}

enum ProcessStart {
    private static let ticks = Int64(truncatingIfNeeded: max(1, sysconf(Int32(_SC_CLK_TCK))))

    /// Returns when the process began, by `BootClock`, at most a hundredth of a second too early.
    /// It is nil if the kernel does not tell.
    static func time(of pid: Int32) -> Int64? {
        guard let start = ProcessIdentity(running: pid)?.start, let count = Int64(exactly: start) else { return nil }
        return count.multipliedReportingOverflow(by: 1_000_000_000 / ticks).partialValue
    }
}

enum ProcessNamespace {
    /// Whether the process is in this one's namespace of that kind. Throws when that cannot be seen.
    static func isOwn(_ kind: String, _ pid: Int32) throws(Errno) -> Bool {
        guard let own = status(of: "self", kind) else {
            // A kernel without them has one for all.
            guard errno == ENOENT else { throw Errno(errno) }
            return true
        }
        guard let other = status(of: "\(pid)", kind) else { throw Errno(EACCES) }
        return own.st_dev == other.st_dev && own.st_ino == other.st_ino
    }

    private static func status(of process: String, _ kind: String) -> stat? {
        var status = stat()
        return stat("/proc/\(process)/ns/\(kind)", &status) == 0 ? status : nil
    }
}
