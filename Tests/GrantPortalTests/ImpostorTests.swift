import Foundation
import Glibc
import TestSupport
import Testing

@testable import GrantPortal

extension GrantPortalTests {
    /// Callers who are not who they seem to be.
    @Suite struct Impostors {
        private let app = "org.test.App"

        private func impostor(_ session: PortalSession, _ words: [String], in sandbox: [String] = []) throws -> Child {
            try Child(
                sandbox + ["/usr/bin/python3", session.impostor] + words, identity: session.fixture.owner,
                environment: session.fixture.environment)
        }

        private let refusal = "org.freedesktop.portal.Error.NotAllowed"

        @Test(
            "A connection that outlives its process identifies no caller",
            .enabled(if: Identity.isRoot, "needs root"), arguments: ["orphan", "reused"])
        func connectionOfAnother(kind: String) throws {
            let session = try PortalSession.started()
            let program = try impostor(session, [kind])
            try program.expect("ready")
            program.send("")
            try program.expect(refusal)
            program.send("")
            #expect(program.wait(within: 10) == 0)
        }

        @Test(
            "A connection made before its program enters a sandbox has its identity",
            .enabled(if: Identity.isRoot, "needs root"))
        func laterSandbox() throws {
            let session = try PortalSession.started()
            let sandbox = try session.fixture.directory("sandbox")
            try FileManager.default.copyItem(atPath: session.instance(app).file, toPath: sandbox + "/.flatpak-info")
            let program = try impostor(session, ["chroot", sandbox])
            for answer in ["answered", refusal, "answered"] { try program.expect(answer) }
        }

        @Test(
            "A program in its own user namespace is not taken for the owner",
            .enabled(if: Machine.hasSandboxes, "bubblewrap makes no sandboxes here"))
        func ownNamespace() throws {
            let session = try PortalSession.started()
            let words = ["bwrap", "--die-with-parent", "--bind", "/", "/", "--dev-bind", "/dev", "/dev"]
            for (more, answer) in [([], "answered"), (["--unshare-user"], refusal)] {
                // As root bubblewrap needs none.
                if more.isEmpty, !Identity.isRoot { continue }
                let program = try impostor(session, ["calls"], in: words + more)
                try program.expect("ready")
                program.send("")
                try program.expect(answer)
            }
        }

        /// What a sandbox says of itself, and how it comes there.
        enum Claim: String, CaseIterable, CustomTestStringConvertible {
            case otherName, noSuchRun, noNumber, badNumber, twoNames, large, fifo, link, everybodys, strangers
            var testDescription: String { rawValue }
        }

        @Test(
            "A sandbox's own claim is trusted only if Flatpak wrote it",
            .enabled(if: Machine.offers("bwrap"), Comment(rawValue: Machine.needs("bwrap"))), arguments: Claim.allCases)
        func claims(claim: Claim) throws {
            let session = try PortalSession.started()
            let (number, file) = try session.instance(app)
            let right = PortalSession.information(app, number)
            var options: [String] = []
            let place = session.fixture.base + "/claim"
            switch claim {
            case .fifo: mkfifo(place, 0o600)
            case .link: options = ["--symlink", file, "/.flatpak-info"]
            default:
                let text =
                    switch claim {
                    case .otherName: PortalSession.information("org.other.App", number)
                    case .noSuchRun: PortalSession.information(app, 4711)
                    case .noNumber: "[Application]\nname=\(app)\n"
                    case .badNumber: right.replacingOccurrences(of: "=\(number)\n", with: "=../.flatpak/\(number)\n")
                    case .twoNames: right + "[Application]\nname=org.other.App\n"
                    case .large: right + String(repeating: "#\n", count: 50_000)
                    default: right
                    }
                try text.write(toFile: place, atomically: false, encoding: .utf8)
                // The refusal does not depend on Flatpak having the same file.
                if [.large, .twoNames].contains(claim) { try text.write(toFile: file, atomically: false, encoding: .utf8) }
                if claim == .everybodys { chmod(place, 0o666) }
                if claim == .strangers { try #require(!Identity.isRoot || chown(place, 4711, 4711) == 0) }
            }
            if options.isEmpty { options = ["--ro-bind", place, "/.flatpak-info"] }
            if claim == .strangers, !Identity.isRoot { return }
            var words = try session.sandbox(of: app)
            let own = try #require(words.firstIndex(of: "/.flatpak-info"))
            words.replaceSubrange((own - 2)...own, with: options)
            let program = session.keep(
                try PortalClient(
                    words + ["/usr/bin/python3", "/client"], identity: session.fixture.owner, environment: session.fixture.environment))
            for answer in [try program.call("List", "(s)", [""]), try program.add("/usr/bin/env")] {
                #expect(answer.error == "NotAllowed", "\(answer)")
            }
            #expect(try session.host.call("List", "(s)", [""]).error == nil)
            #expect(try session.fixture.list("--all").isEmpty)
        }

        @Test(
            "A hanging identity file of a sandbox delays no other caller",
            .enabled(if: Machine.offers("bwrap") && Identity.isRoot, "needs root and bubblewrap"))
        func hangingClaim() throws {
            let session = try PortalSession.started()
            let source = try HangingSource("slow", in: session.fixture)
            defer { source.end() }
            let (number, _) = try session.instance(app)
            try PortalSession.information(app, number).write(toFile: source.behind + "/info", atomically: false, encoding: .utf8)
            let program = try session.sandboxed(
                app, options: ["--ro-bind", source.directory + "/info", "/.flatpak-info"])
            try source.hang()
            for _ in 0..<3 {
                let answer = PortalAnswer(try program.ask(PortalClient.request("List", "(s)", [""]), within: 10))
                #expect(answer.error == "NotAllowed", "\(answer)")
            }
            #expect(try session.host.call("List", "(s)", [""]).error == nil)
            source.goOn()
        }

        @Test(
            "A program in a snap's control group is that snap's application",
            .enabled(if: SnapGroup.isPossible, "needs root, and control groups that can be made"))
        func snap() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let program = try session.another()
            let groups = try SnapGroup.places.map { try SnapGroup("snap.test-app.run-\(getpid()).scope", in: $0) }
            defer { for group in groups { group.end() } }
            try groups[0].take(program.pid)
            #expect(try program.call("List", "(s)", [""]).error == "NotAllowed")
            let id = try program.add(file).id
            #expect(try session.permissions(of: id) == ["snap.test-app": ["read", "write", "grant-permissions"]])
            #expect(text("\(session.view(of: "snap.test-app"))/\(id)/report.txt") == "old\n")
            if groups.count > 1 {
                let other = try SnapGroup("snap.other.run-\(getpid()).scope", in: SnapGroup.places[1])
                defer { other.end() }
                try other.take(program.pid)
                #expect(try program.add(file).error == "NotAllowed")
                other.end()
            }
            #expect(try session.host.call("List", "(s)", [""]).error == nil)
        }
    }
}

/// A control group with a name of a snap's.
private final class SnapGroup {
    /// Where the hierarchies are that this process may change.
    static let places = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup"].filter {
        Identity.isRoot && access($0 + "/cgroup.procs", W_OK) == 0
    }
    static let isPossible = !places.isEmpty
    private let directory: String
    private let place: String

    init(_ name: String, in place: String) throws {
        (directory, self.place) = (place + "/" + name, place)
        guard mkdir(directory, 0o755) == 0 else { throw TestFailure("cannot make \(directory)") }
    }

    func take(_ pid: pid_t) throws { try "\(pid)".write(toFile: directory + "/cgroup.procs", atomically: false, encoding: .utf8) }

    /// Its contents go back to where they came from.
    func end() {
        for pid in (text(directory + "/cgroup.procs") ?? "").split(separator: "\n") {
            try? pid.write(toFile: place + "/cgroup.procs", atomically: false, encoding: .utf8)
        }
        rmdir(directory)
    }
}

/// Parsing of a caller's identity, without a caller.
@Suite struct CallerParsing {
    @Test(
        "A security label names a snap, none, or is unclear",
        arguments: [
            ("snap.firefox.firefox (enforce)", SnapLabel.snap("firefox")), ("snap.a-b_two.hook.configure (complain)\n", .snap("a-b_two")),
            ("snap.firefox.firefox//child (enforce)\0", .snap("firefox")), ("snap.one.run//&snap.two.run (enforce)", .unclear),
            ("snap.one.run//&:ns:unconfined (enforce)", .snap("one")), ("unconfined\n", .none), ("", .none),
            ("/usr/bin/snapper (enforce)", .none), ("unconfined_u:unconfined_r:unconfined_t:s0", .none), ("snap.firefox", .unclear),
            ("snap..run (enforce)", .unclear), ("snap.../x.run", .unclear), ("snap.Fire Fox.run", .unclear),
            ("/usr/lib/snapd/snap-confine (enforce)", .unclear), ("snap-update-ns.firefox (enforce)", .unclear),
        ])
    func labels(label: String, found: SnapLabel) { #expect(SnapLabel(label: Array(label.utf8)) == found) }

    @Test(
        "A control group names a snap, none, or is unclear",
        arguments: [
            ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/snap.firefox.firefox-6f1d.scope\n", SnapLabel.snap("firefox")),
            ("12:freezer:/snap.firefox\n1:name=systemd:/user.slice\n", .snap("firefox")),
            ("1:name=systemd:/snap.one.x-1.scope\n0::/snap.two.x-1.scope\n", .unclear), ("0::/system.slice/snapd.service\n", .none),
            ("0::/snap.one.x.scope/snap.one.y.scope\n", .snap("one")), ("0::/\n", .none), ("", .none), ("0::/snap./x\n", .unclear),
            ("0::/a:b/snap.one.x.scope\n", .snap("one")), ("0::/user.slice/app-flatpak-org.test.App-1.scope\n", .none),
        ])
    func groups(text: String, found: SnapLabel) { #expect(SnapLabel(groups: Array(text.utf8)) == found) }

    @Test("Contradicting snap labels of a process are unclear")
    func together() {
        #expect(SnapLabel.together([.none, .snap("a"), .none]) == .snap("a"))
        #expect(SnapLabel.together([.snap("a"), .snap("b")]) == .unclear && SnapLabel.together([.snap("a"), .unclear]) == .unclear)
        #expect(SnapLabel.together([]) == .none)
    }

    @Test("A pidfd names its process until the process has ended")
    func processDescriptors() {
        func number(_ text: String) -> Int32? { ProcessDescriptor.number(in: Array(text.utf8)) }
        #expect(number("pos:\t0\nflags:\t02000002\nmnt_id:\t16\nino:\t4\nPid:\t123\nNSpid:\t123\n") == 123)
        #expect(number("pos:\t0\nPid:\t-1\nNSpid:\t-1\n") == nil && number("pos:\t0\nPid:\t0\n") == nil)
        #expect(number("pos:\t0\n") == nil && number("Pid:\t1\nPid:\t2\n") == nil && number("Pid:\tx\n") == nil)
    }

    @Test("The start time of a process is between boot and now")
    func start() throws {
        let began = try #require(ProcessStart.time(of: getpid()))
        var now = timespec()
        clock_gettime(CLOCK_BOOTTIME, &now)
        #expect(began > 0 && began <= Int64(now.tv_sec) * 1_000_000_000 + Int64(now.tv_nsec))
    }

    @Test(
        "An instance file has one name and one run number, or is refused",
        arguments: [
            ("[Application]\nname=org.a.B\n[Instance]\ninstance-id=12\n", "org.a.B 12"),
            ("[Runtime]\nname=org.a.B\n[Instance]\ninstance-id=12\n", "org.a.B 12"),
            ("[Application]\nname=org.a.B\n[Instance]\n", nil),
            ("[Application]\nname=org.a.B\n[Instance]\ninstance-id=1\ninstance-id=2\n", nil),
            ("[Application]\nname=org.a.B\n[Instance]\ninstance-id=1x\n", nil),
            ("[Application]\nname=org.a.B\n[Instance]\ninstance-id=\n", nil),
            ("[Application]\nname=org.a.B\nname=org.a.C\n[Instance]\ninstance-id=1\n", nil),
            ("[Application]\nname=../x\n[Instance]\ninstance-id=1\n", nil),
            ("[Application]\nname=org.a.B\0\n[Instance]\ninstance-id=1\n", nil),
            ("[Application]\nname=org.a.B\n[Instance]\ninstance-id=123456789012345678901\n", nil),
        ])
    func information(text: String, found: String?) {
        #expect(SandboxInfo.sandbox(in: Array(text.utf8)).map { "\($0.app) \($0.instance)" } == found)
        #expect(SandboxInfo.sandbox(in: Array(text.utf8) + [0xFF]) == nil)
    }
}
