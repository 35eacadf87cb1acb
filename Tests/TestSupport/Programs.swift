import Foundation
import Glibc

/// The programs under test: those built beside the test bundle, or those that GRANTFS_BINARY and GRANTFS_PROBE name.
/// `.ci/test` names the program that `make install` has put below GRANTFS_INSTALLED.
public enum Programs {
    public static let grantfs = located("grantfs", variable: "GRANTFS_BINARY")
    /// grantfs with faults that a test injects by environment variables (Tests/Faults). It is
    /// beside the program under test.
    public static let grantfsWithFaults: String = {
        let beside = grantfs + "-faults"
        return access(beside, X_OK) == 0 ? beside : located("grantfs-faults", variable: "GRANTFS_FAULTS")
    }()
    /// The programs that the two above start, beside them or in an installation's libexec.
    public static let companions: [String] = [grantfs, grantfsWithFaults].flatMap { program in
        let directory = (program as NSString).deletingLastPathComponent
        return ["grantfsd", "grantfs-sandbox", "grantfs-portal", "grantfs-fleet", "grantfs-volumes"].map { companion in
            let name = (program as NSString).lastPathComponent.replacingOccurrences(of: "grantfs", with: companion)
            let beside = directory + "/" + name
            return access(beside, X_OK) == 0 ? beside : (directory as NSString).deletingLastPathComponent + "/libexec/grantfs/" + name
        }
    }
    public static let probe = located("AccessProbe", variable: "GRANTFS_PROBE")
    public static let claimProbe = located("ClaimProbe", variable: "GRANTFS_CLAIM_PROBE")
    public static let hungSource = located("HungSource", variable: "GRANTFS_HUNG_SOURCE")
    public static let hostileSource = located("HostileSource", variable: "GRANTFS_HOSTILE_SOURCE")
    public static let fakePortal = located("FakePortal", variable: "GRANTFS_FAKE_PORTAL")
    /// Programs that `make conformance` runs for longer: see the head of each main.c.
    public static let fileExerciser = located("FileExerciser", variable: "GRANTFS_FILE_EXERCISER")
    public static let asynchronousWriter = located("AsynchronousWriter", variable: "GRANTFS_ASYNCHRONOUS_WRITER")
    public static let namespaceStress = located("NamespaceStress", variable: "GRANTFS_NAMESPACE_STRESS")
    /// Attacks on the daemon instead of the files: see attacker.h.
    public static let attacker = located("Attacker", variable: "GRANTFS_ATTACKER")
    public static let callTable = located("CallTable", variable: "GRANTFS_CALL_TABLE")
    public static let decoderFuzzer = located("DecoderFuzzer", variable: "GRANTFS_DECODER_FUZZER")
    public static let requestFuzzer = located("RequestFuzzer", variable: "GRANTFS_REQUEST_FUZZER")
    public static let confinedProbe = located("ConfinedProbe", variable: "GRANTFS_CONFINED_PROBE")
    public static let parityProbe = located("ParityProbe", variable: "GRANTFS_PARITY_PROBE")

    /// The helper that mount(8) runs, installed or in the checkout.
    public static let mountHelper: String = {
        if let installed = ProcessInfo.processInfo.environment["GRANTFS_INSTALLED"] { return installed + "/sbin/mount.grantfs" }
        return URL(fileURLWithPath: #filePath).appendingPathComponent("../../../mount-helpers/mount.grantfs").standardized.path
    }()

    /// The examples of docs/Examples.
    public static let directoryList = located("DirectoryList", variable: "GRANTFS_DIRECTORY_LIST")
    public static let noteEditor = located("NoteEditor", variable: "GRANTFS_NOTE_EDITOR")
    public static let textEditor = located("TextEditor", variable: "GRANTFS_TEXT_EDITOR")
    public static let dialogLoop = located("DialogLoop", variable: "GRANTFS_DIALOG_LOOP")
    public static let documentBrowser = located("DocumentBrowser", variable: "GRANTFS_DOCUMENT_BROWSER")

    /// A directory with copies that every user can run. A checkout in a user's home is closed to
    /// others.
    static let sharedDirectory: String? = {
        var template = Array("\(temporaryDirectory)/grantfs-programs.XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { return nil }
        let directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        chmod(directory, 0o755)
        for program in [grantfs, grantfsWithFaults, probe, attacker] + companions {
            let copy = try? Command.run(["cp", program, directory + "/"])
            if copy?.status != 0 { return nil }
        }
        sharedToRemove = directory
        atexit { if let directory = Programs.sharedToRemove { _ = try? Command.run(["rm", "-rf", directory], within: 10) } }
        return directory
    }()
    nonisolated(unsafe) private static var sharedToRemove: String?

    public static func grantfs(for identity: Identity) -> String { path(grantfs, for: identity) }
    /// The grantfs for an environment: the build with faults if the environment has a variable for
    /// them.
    public static func grantfs(in environment: [String: String], for identity: Identity = .current) -> String {
        let hasFaults = environment.keys.contains { $0.hasPrefix("GRANTFS_TEST_") }
        return path(hasFaults ? grantfsWithFaults : grantfs, for: identity)
    }
    public static func attacker(for identity: Identity) -> String { path(attacker, for: identity) }
    static func probe(for identity: Identity) -> String { path(probe, for: identity) }

    /// $TMPDIR, or /tmp.
    public static let temporaryDirectory = ProcessInfo.processInfo.environment["TMPDIR"].map { String($0) } ?? "/tmp"

    private static func path(_ program: String, for identity: Identity) -> String {
        guard identity != .current, let sharedDirectory else { return program }
        return sharedDirectory + "/" + (program as NSString).lastPathComponent
    }

    private static func located(_ name: String, variable: String) -> String {
        if let path = ProcessInfo.processInfo.environment[variable] { return path }
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let length = readlink("/proc/self/exe", &buffer, buffer.count)
        let bundle = String(decoding: buffer.prefix(max(0, length)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return (bundle as NSString).deletingLastPathComponent + "/" + name
    }
}
