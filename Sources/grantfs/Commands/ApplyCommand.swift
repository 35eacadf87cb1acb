import Glibc
import GrantAdministration
import GrantFiles
import GrantModel
import GrantStore
import LinuxFS

/// `grantfs apply`
enum ApplyCommand {
    static let declaration = CommandDeclaration(
        "apply", "Makes what is granted what files declare, after showing the difference.",
        operands: [OperandDeclaration("FILE", isRepeatable: true)],
        options: [
            OptionDeclaration("dry-run", help: "show the difference and change nothing"),
            OptionDeclaration("yes", short: "y", help: "do not ask, on a terminal, before something is taken away"),
            OptionDeclaration("restore", help: "make active again what was revoked, or has expired, and is declared"),
            CommonOptions.timeout, CommonOptions.json,
        ],
        notes: [
            "FILE is TOML as export writes it, a directory stands for its files *.grants, and - for standard input. Of each view that the files name they declare "
                + "all the grants: what is not declared is withdrawn and forgotten. Other views are left as they are.",
            "All files and directories are looked at first; when something is wrong, nothing is changed. What was revoked, or has expired, stays so without "
                + "--restore.",
        ],
        run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let timeout = try arguments.timeout()
        let state = try GrantFileInput.read(arguments.operands)
        let directory = try arguments.storeDirectory()
        let store = try GrantStore(directory: directory, create: true)
        TemporaryMount.sweep(store)
        let administrator = GrantAdministrator.command(store)
        let plan = try administrator.plan(state, restores: arguments.has("restore"))
        let isDry = arguments.has("dry-run")
        if !arguments.wantsJSON { try ApplyText.show(plan) }
        if isDry {
            if arguments.wantsJSON { try Terminal.print(ApplyText.json(plan, [], isDry: true).text) }
            return 0
        }
        let asks = plan.steps.contains(where: \.takesAway) && !arguments.has("yes") && !arguments.wantsJSON
        if asks, isatty(STDIN_FILENO) == 1, isatty(Terminal.standardError) == 1, !Terminal.asks("apply that?") {
            Terminal.note("nothing was changed")
            return 1
        }
        let progress = ProgressOutput(isJSON: arguments.wantsJSON)
        defer { progress.end() }
        Interruption.says("interrupted: what was done until now stays (grantfs apply again does the rest)", status: 3)
        let changes = try administrator.apply(plan, timeout: timeout) { progress.show($0) }
        Interruption.end()
        progress.end()
        if arguments.wantsJSON { try Terminal.print(ApplyText.json(plan, changes, isDry: false).text) }
        return Confirmation.exitStatus(of: changes, "the change", timeout: timeout)
    }
}

/// The files that `grantfs apply` is given.
enum GrantFileInput {
    /// More than any list of grants.
    private static let largest = 16 << 20

    /// `.invalidFile`, `.system` for one that cannot be read.
    static func read(_ operands: [[UInt8]]) throws(GrantError) -> DeclaredState {
        let home = getenv("HOME").map { Array(String(cString: $0).utf8) }.flatMap { $0.first == UInt8(ascii: "/") ? $0 : nil }
        var declared = DeclaredGrants()
        for operand in operands {
            for file in try files(operand) {
                let name = file.isEmpty ? "standard input" : String(decoding: file, as: UTF8.self)
                try declared.read(try contents(file, name), file: name, home: home)
            }
        }
        return DeclaredState(
            views: declared.views,
            items: declared.grants.map {
                DeclaredState.Item(
                    view: $0.view, name: $0.name, path: $0.path, access: $0.access, expires: $0.expires, coordination: $0.coordination,
                    place: $0.place)
            })
    }

    /// An empty name is standard input.
    private static func files(_ operand: [UInt8]) throws(GrantError) -> [[UInt8]] {
        if operand == [UInt8(ascii: "-")] { return [[]] }
        var status = stat()
        guard withCString(operand, { stat($0, &status) }) == 0 else {
            throw unreadable(String(decoding: operand, as: UTF8.self), errno, operand)
        }
        guard status.st_mode & S_IFMT == S_IFDIR else { return [operand] }
        guard let stream = withCString(operand, { opendir($0) }) else { throw unreadable(String(decoding: operand, as: UTF8.self), errno) }
        defer { closedir(stream) }
        var names: [[UInt8]] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            if name.count > 7, name.suffix(7).elementsEqual(".grants".utf8), name.first != UInt8(ascii: ".") { names.append(name) }
        }
        return names.sorted { $0.lexicographicallyPrecedes($1) }.map { CanonicalPath.join(operand, $0) }
    }

    private static func contents(_ file: [UInt8], _ name: String) throws(GrantError) -> [UInt8] {
        let descriptor = file.isEmpty ? STDIN_FILENO : withCString(file) { open($0, O_RDONLY | O_CLOEXEC) }
        guard descriptor >= 0 else { throw unreadable(name, errno) }
        defer { if !file.isEmpty { close(descriptor) } }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw unreadable(name, errno) }
            if count == 0 { return bytes }
            bytes += buffer.prefix(count)
            if bytes.count > largest { throw GrantError(.invalidFile, "\(name) is no list of grants", cause: "it is larger than 16 MiB") }
        }
    }

    private static func unreadable(_ name: String, _ error: Int32, _ path: [UInt8] = []) -> GrantError {
        GrantError(
            .system, "\(name) cannot be read", cause: Errno(error).description,
            advice: error == ENOENT ? UnexpandedHome.advice(for: path) : nil)
    }
}
