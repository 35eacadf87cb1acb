import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// The mounts of volumes, below the store's run directory, each with a daemon of its own.
struct VolumeMounts {
    private let store: GrantStore
    private let directory: String
    /// Daemons that this process has started and not reaped yet.
    private let daemons = Lock<[Int32]>([])

    init(_ store: GrantStore) throws(GrantError) {
        self.store = store
        directory = store.runDirectory + "/volumes"
        try VolumeMounts.make(directory)
    }

    private static func make(_ path: String) throws(GrantError) {
        if mkdir(path, 0o700) == 0 || errno == EEXIST { return }
        throw GrantError(.mountFailed, "\(path) cannot be made", cause: Errno(errno).description)
    }

    private func path(of name: String) -> String { "\(directory)/\(name)" }

    private func mounted(_ name: String) -> MountEntry? {
        guard let entry = try? Mountpoint(canonical: Array(path(of: name).utf8)).mounted() else { return nil }
        return entry.type == GrantAdministrator.filesystemType ? entry : nil
    }

    /// Where the volume is mounted, or nil.
    func place(of name: String) -> String? { mounted(name) == nil ? nil : path(of: name) }

    private func records(of name: String) throws(GrantError) -> [MountRecord] {
        try store.mounts().filter { $0.mountpoint == Array(path(of: name).utf8) }
    }

    /// Mounts the view unless it is mounted, and returns where. A dead mount is replaced.
    func begin(_ name: String, _ view: ViewName, owners: OwnerMap?) throws(GrantError) -> String {
        let place = path(of: name)
        if let entry = mounted(name), !Mountpoint(canonical: Array(place.utf8)).isDead() {
            let device = DeviceNumber(major: entry.major, minor: entry.minor)
            if try records(of: name).contains(where: { $0.connection?.device == device && $0.shown.onlyView == view }) { return place }
            throw GrantError(
                .mountFailed, "the volume “\(name)” cannot be mounted", cause: "another view is mounted at \(place)",
                advice: "grantfs unmount \(place)")
        }
        try VolumeMounts.make(directory)
        if mounted(name) == nil { try VolumeMounts.make(place) }
        // Programs of a container are other users than the plugin's.
        let options =
            ["recover"] + (geteuid() == 0 || Mountpoint.usersMayAllowOther ? ["allow_other"] : [])
            + (owners.map { ["map=\($0.userText)", "map-groups=\($0.groupText)"] } ?? [])
        let words = [
            "grantfs", "mount", "--store", store.directory, "--new", "-o", options.joined(separator: ","), view.description, place,
        ]
        let daemon = try CompanionProgram.daemon.file()
        let said: [UInt8]
        do throws(Errno) {
            // The engine shows the reason to its user.
            let errors = try MemoryFile.of([])
            let outcome = try BackgroundStart.start(daemon, words: words.map { Array($0.utf8) }, errors: errors.number) { process in
                daemons.withLock { $0.append(process) }
            }
            if outcome.status == 0 { return place }
            said = try File.contents(of: "/proc/self/fd/\(errors.number)".utf8)
        } catch {
            throw GrantError(.mountFailed, "the daemon cannot be started", cause: error.description)
        }
        rmdir(place)
        throw GrantError(
            .mountFailed, "the volume “\(name)” cannot be mounted",
            cause: said.isEmpty ? "the daemon ended before it answered" : VolumeMounts.plain(said))
    }

    /// Without the name of the program, on one line.
    private static func plain(_ said: [UInt8]) -> String {
        let lines = String(decoding: said, as: UTF8.self).split(separator: "\n")
        return lines.map { $0.hasPrefix("grantfs: ") ? $0.dropFirst(9) : $0 }.joined(separator: "; ")
    }

    /// Daemons that still serve the volume, or may.
    private func served(_ name: String) throws(GrantError) -> [MountRecord] {
        try records(of: name).filter { $0.isServed(in: store.runDirectory) }
    }

    /// Throws `.mountFailed` if a container has it. Each has its own copy of the mount, at another place, so it could be unmounted here.
    func requireUnused(_ name: String) throws(GrantError) {
        let own = try location(of: name)
        let deadline = Clock.deadline(seconds: 5)
        for device in try served(name).compactMap({ $0.connection?.device }) {
            let holders = Holder.ofMount(device, until: deadline)
            guard let holder = holders.first(where: { $0.locations.contains { $0 == nil || $0 != own } }) else {
                if Clock.monotonic < deadline { continue }
                throw GrantError(
                    .mountFailed, "the volume “\(name)” cannot be removed", cause: "the search for its users takes too long",
                    advice: "try again")
            }
            throw GrantError(
                .mountFailed, "the volume “\(name)” cannot be removed",
                cause: "it is in use by process \(holder.pid) (\(Terminal.visible(holder.command)))", advice: "end that container first")
        }
    }

    /// The directory that the mount covers. A mount namespace that is a copy of this one has the mount there too, also below another
    /// directory, until the directory is removed. A container has it elsewhere.
    private func location(of name: String) throws(GrantError) -> [UInt8]? {
        do throws(Errno) {
            return try MountTable.current().location(ofMountAt: Array(path(of: name).utf8))
        } catch {
            throw GrantError(.system, "the mounts of this machine cannot be read", cause: error.description)
        }
    }

    /// Throws `.mountFailed` if a daemon goes on after `end`: something has its mount, or a directory of it, that `requireUnused` cannot see.
    func requireEnd(_ name: String) throws(GrantError) {
        let deadline = Clock.deadline(seconds: 3)
        while try !served(name).isEmpty {
            if Clock.monotonic >= deadline {
                throw GrantError(
                    .mountFailed, "the volume “\(name)” cannot be removed",
                    cause: "a process has a directory of it, or a mount namespace without processes has its mount",
                    advice: "end the containers that have used it")
            }
            ThreadSleep.milliseconds(20)
        }
    }

    /// Ends it, also for processes that have files or directories of it. Grants must be withdrawn before, which keeps acknowledged writes.
    func abort(_ name: String) throws(GrantError) {
        for record in try served(name) { try? record.connection?.abort() }
        try end(name)
        try requireEnd(name)
    }

    /// Unmounts it. Throws `.mountFailed` if it is busy.
    func end(_ name: String) throws(GrantError) {
        let place = path(of: name)
        let records = try records(of: name)
        for record in records { record.abortIfDefunct(in: store) }
        let mountpoint = Mountpoint(canonical: Array(place.utf8))
        while mounted(name) != nil { try mountpoint.unmount() }
        // In other namespaces as well, nothing is mounted on a directory that does not exist.
        rmdir(place)
        MountEnd.wait(for: records)
        reap()
    }

    /// Daemons that have ended, also long ago, stay processes until then.
    private func reap() {
        daemons.withLock { daemons in daemons.removeAll { waitpid($0, nil, WNOHANG) != 0 } }
    }
}
