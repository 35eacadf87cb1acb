import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantSystem

/// `grantfs coordinate`
enum CoordinateCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
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
