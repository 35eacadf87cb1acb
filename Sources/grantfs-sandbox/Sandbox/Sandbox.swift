import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// The sandbox of `grantfs run`, as arguments for bwrap(1).
///
/// The program has no capability and cannot gain one: it has a user namespace of its own, no new
/// privileges, and can make no further user namespaces. What it may read of the system is bound
/// read-only. What it may write, except for the view, is in memory and gone with it.
struct Sandbox {
    /// The absolute mountpoint of the view outside.
    let view: [UInt8]
    let layout: SandboxLayout
    let hasNetwork: Bool
    let home: [UInt8]
    let environment: [(name: String, value: [UInt8])]
    /// The program's working directory.
    let directory: [UInt8]

    /// The files in the program's home, by name.
    let homeFiles: [(name: String, contents: [UInt8])]

    /// `current`: the caller's working directory, canonical.
    init(view: [UInt8], layout: SandboxLayout, request: SandboxRequest, current: [UInt8]?) {
        self.view = view
        self.layout = layout
        hasNetwork = request.hasNetwork
        home = SandboxPlaces.home(beside: [layout.view] + layout.places)
        environment = SandboxEnvironment.merged(
            SandboxEnvironment.standard(home: home, first: request.searchPath, shown: layout.binds.map(\.place)) + request.variables)
        directory = layout.start(from: current)
        let git = GitValues.file(of: request.gitValues)
        homeFiles = git.isEmpty ? [] : [(".gitconfig", git)]
    }

    /// Whether bwrap can be started before the view is served.
    static var canWait: Bool { access("/proc/keys", F_OK) == 0 }

    /// Returns the options for `bwrap --args`: on bwrap's command line the program could read them,
    /// with paths of this machine. `filter` is the descriptor of a `SandboxFilter`, `barrier` that
    /// of a `SandboxBarrier`. `handed` gets the other descriptors.
    func words(
        _ system: SystemFiles.Found, statusDescriptor: Int32, filter: Int32, barrier: Int32, _ handed: HandedDescriptors
    ) throws(Errno) -> [[UInt8]] {
        var words = Words()
        words.add("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--die-with-parent", "--new-session")
        if hasNetwork { words.add("--share-net") }
        words.add("--json-status-fd", String(statusDescriptor), "--seccomp", String(filter))
        words.add(contents: system.words)
        words.add("--proc", "/proc", "--dev", "/dev")
        // bwrap shows its own standard output there if that is a terminal: the caller's.
        if isatty(STDOUT_FILENO) == 1 { words.add("--dev-bind", "/dev/null", "/dev/console") }
        for directory in ["/tmp", "/var/tmp"] { words.add("--perms", "1777", "--tmpfs", directory) }
        words.add("--tmpfs", "/run", "--perms", "0700", "--dir", SandboxEnvironment.runtimeDirectory)
        SystemFiles(isRoot: geteuid() == 0, hasNetwork: hasNetwork).addResolver(to: &words)
        words.add("--perms", "0700", "--tmpfs")
        words.add(home)
        for (name, contents) in homeFiles {
            words.add("--perms", "0644", "--file", String(handed.hand(try MemoryFile.of(contents))))
            words.add(CanonicalPath.join(home, Array(name.utf8)))
        }
        // /proc/keys has descriptions of keys of the program's user, which belong to other programs. bwrap waits here, before it looks at
        // the view.
        if Sandbox.canWait { words.add("--perms", "0444", "--ro-bind-data", String(barrier), "/proc/keys") }
        // For files that root owns the kernel asks for no capability: /proc/sys, which bwrap leaves writable, and others.
        if geteuid() == 0 { words.add("--remount-ro", "/proc") }
        words.add("--bind")
        words.add(view, layout.view)
        if let place = layout.mountpoint {
            words.add("--bind")
            words.add(view, place)
        }
        for (name, path) in layout.directories {
            words.add("--bind")
            words.add(CanonicalPath.join(view, name.bytes), path)
        }
        for bind in layout.binds {
            words.add("--ro-bind")
            words.add(bind.source, bind.place)
        }
        words.add("--remount-ro", "/", "--chdir")
        words.add(directory)
        return words.list
    }
}

extension Sandbox {
    /// Whether the sandbox shows a file by this name of a program, executable or not.
    func shows(program: [UInt8]) -> Bool {
        let search = environment.last { $0.name == "PATH" }?.value ?? []
        let directories = program.contains(0x2F) ? [directory] : search.split(separator: UInt8(ascii: ":")).map { Array($0) }
        return directories.contains { directory in
            let path = program.first == 0x2F ? program : CanonicalPath.join(directory, program)
            return isShown(CanonicalPath.resolveWhatExists(path)) && withCString(path) { access($0, F_OK) } == 0
        }
    }

    private func isShown(_ path: [UInt8]) -> Bool {
        let system = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"].map { Array($0.utf8) }
        return (system + layout.places + [layout.view]).contains { MountTable.path(path, isAtOrBelow: $0) }
    }
}

/// Command-line arguments, as bytes.
struct Words {
    private(set) var list: [[UInt8]] = []

    mutating func add(_ words: String...) { list += words.map { Array($0.utf8) } }
    mutating func add(_ words: [UInt8]...) { list += words }
    mutating func add(contents words: [[UInt8]]) { list += words }
}

/// The environment variables of a program in a sandbox.
enum SandboxEnvironment {
    /// Passed on unchanged: settings of the terminal and the language, and nothing that names a file, a socket or a secret.
    private static let kept = ["TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "TZ"]

    static var runtimeDirectory: String { "/run/user/\(geteuid())" }

    /// Keeps the last value for each name.
    static func merged(_ variables: [(name: String, value: [UInt8])]) -> [(name: String, value: [UInt8])] {
        var result: [(name: String, value: [UInt8])] = []
        for variable in variables {
            if let place = result.firstIndex(where: { $0.name == variable.name }) {
                result[place] = variable
            } else {
                result.append(variable)
            }
        }
        return result
    }

    /// Returns the variables of every program. Its PATH has the existing directories of `first` and the caller's directories that are
    /// in `shown`, before the system's.
    static func standard(home: [UInt8], first: [[UInt8]], shown: [[UInt8]]) -> [(name: String, value: [UInt8])] {
        let user = getpwuid(geteuid()).map { String(cString: $0.pointee.pw_name) } ?? "\(geteuid())"
        let own = (value(of: "PATH") ?? []).split(separator: UInt8(ascii: ":")).map { Array($0) }
        let isShown = { (path: [UInt8]) in
            shown.contains { MountTable.path(path, isAtOrBelow: $0) || MountTable.path($0, isAtOrBelow: path) }
        }
        let extra = (own.filter { path in shown.contains { MountTable.path(path, isAtOrBelow: $0) } } + first.filter(isShown))
            .flatMap { $0 + [UInt8(ascii: ":")] }
        let bin = "/usr/local/bin:/usr/bin:/bin" + (geteuid() == 0 ? ":/usr/local/sbin:/usr/sbin:/sbin" : "")
        var result: [(name: String, value: [UInt8])] = [
            ("PATH", extra + Array(bin.utf8)), ("HOME", home), ("USER", Array(user.utf8)), ("LOGNAME", Array(user.utf8)),
            ("SHELL", Array("/bin/sh".utf8)), ("TMPDIR", Array("/tmp".utf8)), ("XDG_RUNTIME_DIR", Array(runtimeDirectory.utf8)),
        ]
        for name in names where kept.contains(name) || name.hasPrefix("LC_") {
            if let value = value(of: name) { result.append((name, value)) }
        }
        return result
    }

    static func value(of name: String) -> [UInt8]? {
        getenv(name).map { value in UnsafeBufferPointer(start: value, count: strlen(value)).map { UInt8(bitPattern: $0) } }
    }

    private static var names: [String] {
        var names: [String] = []
        var next = environ
        while let entry = next.pointee {
            names.append(String(String(cString: entry).prefix { $0 != "=" }))
            next += 1
        }
        return names
    }
}
