import Glibc
import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantSystem

/// `grantfs coordinate`
enum CoordinateCommand {
    static let declaration = CommandDeclaration(
        "coordinate", "Holds a claim on files and directories while a command runs, as flock(1) holds a lock.",
        operands: [
            OperandDeclaration("ACCESS", choices: ["read", "write"]), OperandDeclaration("PATH", isRepeatable: true),
            OperandDeclaration("COMMAND", isOptional: true, isRepeatable: true, isCommand: true),
        ],
        options: [
            CommonOptions.view,
            OptionDeclaration(
                "for", value: "WHAT", help: "the purpose of the access (read: metadata or uploading, write: all but uploading)",
                choices: ["metadata", "uploading", "deleting", "moving", "merging", "replacing"]),
            OptionDeclaration("to", value: "PATH", help: "with --for moving: the new place"),
            OptionDeclaration(
                "timeout", value: "S", help: "seconds to wait for the claim, 0 for none (default: no limit)"),
            OptionDeclaration(
                "hold", value: "S",
                help:
                    "seconds that operations through a mandatory grant wait for this claim, then EAGAIN (default: no limit)"),
            OptionDeclaration(
                "snapshot", value: "DIR",
                help: "read: copies the items into DIR, which is made, ends the claim and runs COMMAND on the copy"),
            OptionDeclaration("follow", help: "a link as the last name is followed"),
            OptionDeclaration(
                "when-lost", value: "WHAT", help: "end, with SIGTERM to the command, or go-on (default: end)",
                choices: ["end", "go-on"]),
            OptionDeclaration("json", help: "progress on stderr as JSON, an object on each line"),
        ],
        notes: [
            "PATH is the name or id of a grant, or a file or directory, on the host or below a mount (./NAME where a "
                + "grant has that name). Readers share, a writer excludes. Several paths are claimed together or "
                + "not at all.",
            "The command finds the place of the first PATH on the host in $GRANTFS_PATH, of the others in "
                + "$GRANTFS_PATH_2 and so on.",
            "Exit status: that of the command, or 128 and the number of the signal that ended it. 126 or 127 when "
                + "it cannot be run, 1 when there was no claim, or when it was lost while the command ran.",
            "With --snapshot the copies lie in DIR under their own names: data (shared with the originals where the "
                + "filesystem can), modes, owners, times, ACLs, extended attributes, links. The claim ends when they "
                + "are whole, and $GRANTFS_PATH is the copy. DIR stays. Without COMMAND the copies' places are printed.",
        ],
        takesCommand: true, run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let plan = try CoordinatePlan(arguments)
        let administrator = GrantAdministrator.command(try arguments.openStore())
        let coordination = FileCoordination(administrator)
        let accesses = try plan.accesses(administrator, coordination, view: try arguments.view())
        // Nested `grantfs coordinate` commands share one claimant, so they never wait for each other's claims.
        let inherited = getenv("GRANTFS_CLAIMANT").flatMap { Claimant(String(cString: $0)) }
        let claimant = inherited ?? Claimant()
        let progress = ProgressOutput(isJSON: arguments.wantsJSON)
        let claim: Claim
        do throws(CoordinationError) {
            claim = try coordination.claim(
                accesses, claimant: claimant, purpose: claimant.description, timeout: plan.timeout, hold: plan.hold,
                progress: { progress.show($0) })
        } catch {
            progress.end()
            throw error.grantError
        }
        progress.note("granted")
        if let directory = plan.snapshot {
            return try CoordinatedSnapshot.make(claim, in: directory, then: plan.command, progress, isJSON: arguments.wantsJSON)
        }
        setenv("GRANTFS_CLAIMANT", claimant.description, 1)
        CoordinatedChild.export(claim.paths)
        let status = try CoordinatedChild.run(plan.command, holding: claim, endsWhenLost: plan.endsWhenLost)
        if status == 0, let newPath = claim.newPaths[0] { claim.tellMoved(claim.paths[0], to: newPath) }
        claim.end()
        progress.end()
        return status
    }
}

/// The parsed arguments of `grantfs coordinate`.
private struct CoordinatePlan {
    let isWriting: Bool
    let paths: [[UInt8]]
    let command: [[UInt8]]
    let intent: CoordinatedAccess.Intent
    let newPath: [UInt8]?
    let timeout: Double?
    let hold: Double?
    let follows: Bool
    let endsWhenLost: Bool
    let snapshot: [UInt8]?

    init(_ arguments: ParsedArguments) throws(GrantError) {
        switch arguments.operands[0] {
        case Array("read".utf8): isWriting = false
        case Array("write".utf8): isWriting = true
        default:
            let word = String(decoding: arguments.operands[0], as: UTF8.self)
            throw GrantError(.usage, "coordinate: invalid access “\(word)”", advice: "use read or write")
        }
        paths = arguments.operands.dropFirst().map { $0 }
        command = arguments.trailing
        snapshot = arguments.bytes("snapshot").map { CanonicalPath.plain($0) }
        if command.isEmpty, snapshot == nil { throw GrantError(.usage, "coordinate: COMMAND is missing", advice: "behind --") }
        if snapshot != nil, isWriting { throw GrantError(.usage, "--snapshot is for reading") }
        let words: [String: CoordinatedAccess.Intent] =
            isWriting
            ? ["deleting": .deleting, "moving": .moving, "merging": .merging, "replacing": .replacing, "metadata": .metadata]
            : ["metadata": .metadata, "uploading": .uploading]
        if let word = try arguments.text("for") {
            guard let known = words[word] else {
                throw GrantError(.usage, "--for \(word) is unknown", advice: words.keys.sorted().joined(separator: ", "))
            }
            intent = known
        } else {
            intent = snapshot == nil ? .content : .uploading
        }
        if (intent == .uploading) != (snapshot != nil) { throw GrantError(.usage, "--for uploading and --snapshot DIR belong together") }
        newPath = arguments.bytes("to").map { CanonicalPath.absolute($0) }
        if (newPath != nil) != (intent == .moving) { throw GrantError(.usage, "--for moving and --to PATH belong together") }
        if newPath != nil, paths.count > 1 { throw GrantError(.usage, "one PATH is moved at a time") }
        timeout = try arguments.seconds("timeout")
        hold = try arguments.seconds("hold")
        follows = arguments.has("follow")
        switch try arguments.text("when-lost") {
        case nil, "end": endsWhenLost = true
        case "go-on": endsWhenLost = false
        case let word?: throw GrantError(.usage, "--when-lost \(word) is unknown", advice: "end or go-on")
        }
    }

    func accesses(
        _ administrator: GrantAdministrator, _ coordination: FileCoordination, view: ViewName?
    ) throws(GrantError) -> [CoordinatedAccess] {
        var result: [CoordinatedAccess] = []
        for path in paths {
            let place = try CoordinatedPlace.of(path, administrator, coordination, view: view)
            result.append(
                CoordinatedAccess(
                    path: place, kind: isWriting ? .writing : .reading, intent: intent, followsLink: follows,
                    newPath: newPath))
        }
        return result
    }
}

extension ParsedArguments {
    /// Returns the seconds of an option, 0 to a day, or nil without the option.
    func seconds(_ option: String) throws(GrantError) -> Double? {
        guard let text = try text(option) else { return nil }
        guard let seconds = Double(text), seconds >= 0, seconds <= 86_400 else {
            throw GrantError(
                .usage, "invalid duration “\(text)” for --\(option)", advice: "use a number of seconds, such as 10 or 0.5")
        }
        return seconds
    }
}
