import Glibc
import GrantAdministration
import GrantCommandLine
import GrantFiles
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs apply`
enum ApplyCommand {
    static let declaration = CommandDeclaration(
        "apply", "Changes the grants to those that files declare, after showing the difference.",
        operands: [OperandDeclaration("FILE", isRepeatable: true)],
        options: [
            OptionDeclaration("dry-run", help: "show the difference and change nothing"),
            OptionDeclaration("yes", short: "y", help: "do not ask, on a terminal, before something is taken away"),
            OptionDeclaration("restore", help: "make declared grants active again that were revoked or have expired"),
            CommonOptions.timeout, CommonOptions.json,
        ],
        notes: [
            "FILE is TOML as export writes it, a directory stands for its files *.grants, and - for standard input. "
                + "Of each view that the files name they declare all the grants: any other is withdrawn and forgotten. "
                + "Other views are unchanged.",
            "All files and directories are checked first. An error changes nothing. Without --restore a revoked or "
                + "expired grant stays revoked or expired.",
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let timeout = try arguments.timeout()
        let state = try GrantFileInput.read(arguments.operands)
        let directory = try arguments.storeDirectory()
        // The store is created only when something is granted.
        let store = try arguments.openStoreIfThere()
        let planner = ApplyPlanner(administrator: store.map { GrantAdministrator.command($0) }, store: directory, probe: .command)
        let plan = try planner.plan(state, restores: arguments.has("restore"))
        let isDry = arguments.has("dry-run")
        let needsStore = store != nil || plan.steps.contains(where: \.isChange)
        if !arguments.wantsJSON { try ApplyText.show(plan) }
        if isDry || !needsStore {
            if arguments.wantsJSON { try Terminal.print(ApplyText.json(plan, [], isDry: isDry).text) }
            return 0
        }
        if !isWanted(takesAway: plan.steps.contains(where: \.takesAway), arguments) { return 1 }
        let progress = ProgressOutput(isJSON: arguments.wantsJSON)
        defer { progress.end() }
        Interruption.says("interrupted: the changes made so far stay (grantfs apply again makes the rest)", status: 3)
        let used = if let store { store } else { try GrantStore(directory: directory, create: true) }
        let administrator = GrantAdministrator.command(used)
        let changes = try administrator.apply(plan, timeout: timeout) { progress.show($0) }
        Interruption.end()
        progress.end()
        if arguments.wantsJSON { try Terminal.print(ApplyText.json(plan, changes, isDry: false).text) }
        return Confirmation.exitStatus(of: changes, "the change", timeout: timeout)
    }
}

extension ApplyCommand {
    /// Whether the person at the terminal, if there is one, agrees to a change that takes something away.
    static func isWanted(takesAway: Bool, _ arguments: ParsedArguments) -> Bool {
        guard takesAway, !arguments.has("yes"), !arguments.wantsJSON, isatty(STDIN_FILENO) == 1, isatty(Terminal.standardError) == 1,
            !Terminal.asks("apply that?")
        else { return true }
        Terminal.note("nothing was changed")
        return false
    }
}

/// The input files of `grantfs apply`.
enum GrantFileInput {
    /// The maximum size of a file.
    private static let maxBytes = 16 << 20

    /// Reads the declared state. Throws `.invalidFile`, or `.system` if a file cannot be read.
    static func read(_ operands: [[UInt8]]) throws(GrantError) -> DeclaredState {
        let declared = try declared(operands)
        return DeclaredState(
            views: declared.views,
            items: declared.grants.map {
                DeclaredState.Item(
                    view: $0.view, name: $0.name, path: $0.path, access: $0.access, expires: $0.expires, coordination: $0.coordination,
                    form: $0.asDirectory ? .directory : .file, rules: $0.rules, place: $0.place)
            })
    }

    /// `isFleet`: declares grants of a fleet, which have no home directory.
    static func declared(_ operands: [[UInt8]], isFleet: Bool = false) throws(GrantError) -> DeclaredGrants {
        let home = getenv("HOME").map { Array(String(cString: $0).utf8) }.flatMap { $0.first == UInt8(ascii: "/") ? $0 : nil }
        var declared = DeclaredGrants()
        for operand in operands {
            let found = try files(operand)
            for file in found {
                let name = file.isEmpty ? "standard input" : String(decoding: file, as: UTF8.self)
                try declared.read(
                    try contents(file, name, isNamed: found == [operand] || file.isEmpty), file: name, home: isFleet ? nil : home,
                    isFleet: isFleet)
            }
        }
        return declared
    }

    /// An empty name means standard input.
    private static func files(_ operand: [UInt8]) throws(GrantError) -> [[UInt8]] {
        if operand == [UInt8(ascii: "-")] { return [[]] }
        var status = stat()
        guard withCString(operand, { stat($0, &status) }) == 0 else {
            throw unreadable(String(decoding: operand, as: UTF8.self), errno, operand)
        }
        guard status.st_mode & S_IFMT == S_IFDIR else { return [operand] }
        try checkOwner(status, String(decoding: operand, as: UTF8.self))
        guard let stream = withCString(operand, { opendir($0) }) else { throw unreadable(String(decoding: operand, as: UTF8.self), errno) }
        defer { closedir(stream) }
        var names: [[UInt8]] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            if name.count > 7, name.suffix(7).elementsEqual(".grants".utf8), name.first != UInt8(ascii: ".") { names.append(name) }
        }
        return names.sorted { $0.lexicographicallyPrecedes($1) }.map { CanonicalPath.join(operand, $0) }
    }

    /// For root, the files in a directory grant without a check, so no other user may be able to
    /// write them. A file that was named is the caller's own choice.
    private static func checkOwner(_ status: stat, _ name: String) throws(GrantError) {
        if geteuid() != 0 { return }
        guard status.st_uid == 0, status.st_mode & 0o022 == 0 else {
            throw GrantError(
                .permission, "\(name) is not read",
                cause: status.st_uid == 0 ? "others may write to it" : "it belongs to the user with id \(status.st_uid)",
                advice: "chown it to root and chmod go-w it, or name the file itself")
        }
    }

    private static func contents(_ file: [UInt8], _ name: String, isNamed: Bool) throws(GrantError) -> [UInt8] {
        let descriptor = file.isEmpty ? STDIN_FILENO : withCString(file) { open($0, O_RDONLY | O_CLOEXEC) }
        guard descriptor >= 0 else { throw unreadable(name, errno) }
        defer { if !file.isEmpty { close(descriptor) } }
        if !isNamed {
            var status = stat()
            guard fstat(descriptor, &status) == 0 else { throw unreadable(name, errno) }
            try checkOwner(status, name)
        }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw unreadable(name, errno) }
            if count == 0 { return bytes }
            bytes += buffer.prefix(count)
            if bytes.count > maxBytes {
                throw GrantError(.invalidFile, "\(name) is not a list of grants", cause: "it is larger than 16 MiB")
            }
        }
    }

    private static func unreadable(_ name: String, _ error: Int32, _ path: [UInt8] = []) -> GrantError {
        GrantError(
            .system, "\(name) cannot be read", cause: Errno(error).description,
            advice: error == ENOENT ? UnexpandedHome.advice(for: path) : nil)
    }
}
