import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// Rules that change while programs use the files.
    @Suite struct RuleChangeTests {
        static let warm = Situation.all.filter { !$0.cold }

        @Test("Everything reached below a directory is refused once a rule hides it", arguments: warm)
        func hide(_ situation: Situation) throws {
            let fixture = try MountFixture(owner: situation.owner)
            let source = try fixture.source("a")
            chown(source, situation.caller.uid, situation.caller.gid)
            for name in ["D", "stays"] { try Probe.prepare(try fixture.directory("source/a/" + name), for: situation.caller) }
            let native = try Probe.native(in: try fixture.directory("native"), as: situation.caller)
            let without: Set<String> = situation.cache == "none" ? ["SKIP", "ENODEV"] : []
            try fixture.grant(source)
            let place = try fixture.mount(options: situation.options) + "/a"
            let held = try Probe(below: place + "/D", as: situation.caller)
            let stays = try Probe(below: place + "/stays", as: situation.caller)
            ProbedMount.expectNative(try held.attempt(), native, "before", without: without)

            try fixture.grantfs("set", "a", "--hide", "/D").orThrow()
            let results = try held.attempt().filter { !["path", "inotify"].contains($0.held) }
            ProbedMount.expectRefused(results, native, "hidden", cache: situation.cache)
            ProbedMount.expectNative(try stays.attempt(), native, "what stays", without: without)
            #expect(try Probe.call("stat", place + "/D", as: situation.caller) == "ENOENT")
            try fixture.grantfs("set", "a", "--no-rules").orThrow()
            #expect(try Probe.call("stat", place + "/D", as: situation.caller) == "OK")
            for result in try held.letGo() + stays.letGo() {
                #expect(result.errno == "OK", "close never fails: \(result.held) gives \(result.errno)")
            }
        }

        @Test(
            "A rule is confirmed when nothing is cached of what other threads found hidden", arguments: ["shared", "exclusive"])
        func hiddenByOthers(_ cache: String) throws {
            let fixture = try MountFixture()
            let stops = try StopPoints(fixture)
            let mounted = try RuledMount(fixture, cache, rules: [], files: ["d/file", "other"])
            try Data(repeating: 0x61, count: 8192).write(to: URL(fileURLWithPath: mounted.source + "/d/file"))
            let holder = try Child([Programs.attacker, "outlive", mounted.place + "/d/file", "map", "fd", "cwd"])
            try holder.expect("ready")
            let file = open(mounted.place + "/d/file", O_RDWR | O_CLOEXEC)
            defer { close(file) }
            for point in ["rules", "departing"] { stops.arm(point) }
            let setting = try Child([Programs.grantfs, "set", "a", "--hide", "/d"], environment: fixture.environment)
            try stops.awaitStop("rules")
            // The file is judged for this call, and leaves.
            #expect(fchmod(file, 0o600) == -1 && errno == EACCES)
            try stops.awaitStop("departing")
            stops.goOn("rules")
            #expect(setting.wait() == 0)
            #expect(try Succession.said(holder) == "map SIGBUS fd EACCES cwd EACCES")
            stops.goOn("departing")
            #expect(try Succession.said(holder) == "map SIGBUS fd EACCES cwd EACCES")
        }

        @Test("A rule that protects an open file refuses later writes and keeps earlier ones", arguments: RuledMount.modes)
        func protect(_ mode: String) throws {
            let mounted = try RuledMount(mode, rules: [], files: ["kept", "free"])
            let (kept, free) = (open(mounted.place + "/kept", O_RDWR | O_APPEND), open(mounted.place + "/free", O_RDWR | O_APPEND))
            defer { for descriptor in [kept, free] { close(descriptor) } }
            var text = "kept"
            for _ in 0..<4 {
                #expect(write(kept, "1", 1) == 1 && write(free, "1", 1) == 1)
                text += "1"
                try mounted.set("--protect", "kept")
                #expect(mounted.hostText("kept") == text)
                #expect(write(kept, "2", 1) == -1 && errno == EROFS)
                #expect(write(free, "2", 1) == 1)
                #expect(ftruncate(kept, 0) == -1 && errno == EROFS)
                #expect(fchmod(kept, 0o600) == -1 && errno == EROFS)
                #expect(mounted.text("kept") == text)
                try mounted.set("--no-rules")
                #expect(write(kept, "3", 1) == 1)
                text += "3"
                #expect(fsync(kept) == 0 && mounted.hostText("kept") == text)
            }
        }

        @Test(
            "A rule hides an open file that the host has mounted over a visible name",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)), arguments: RuledMount.modes)
        func hideMounted(_ mode: String) throws {
            // A directory with so many known files is judged by its listing.
            let others = (0..<30).map { "other-\($0)" }
            let mounted = try RuledMount(mode, rules: [], files: ["secret.key", "public"] + others)
            for name in ["public"] + others { #expect(mounted.text(name) == name) }
            try mounted.fixture.mountOther(["mount", "--bind", mounted.source + "/secret.key"], at: mounted.source + "/public")
            let descriptor = open(mounted.place + "/secret.key", O_RDONLY)
            defer { close(descriptor) }
            try mounted.set("--hide", "*.key")
            var byte: UInt8 = 0
            #expect(pread(descriptor, &byte, 1, 0) == -1 && errno == EACCES)
            #expect(try mounted.call("open", "secret.key") == "ENOENT")
        }

        @Test("A rule holds for each name of a linked file", arguments: RuledMount.modes, [false, true])
        func linked(_ mode: String, isRemade: Bool) throws {
            for (rule, calls) in [("--protect", ["write": "EROFS"]), ("--hide", ["open": "ENOENT", "write": "ENOENT", "stat": "ENOENT"])] {
                let mounted = try RuledMount(mode, rules: [], files: ["f"])
                #expect(try mounted.call("link", "f", "g") == "OK")
                if isRemade {
                    #expect(try mounted.call("unlink", "f") == "OK")
                    #expect(try mounted.call("link", "g", "f") == "OK")
                }
                let (first, second) = (open(mounted.place + "/f", O_RDWR), open(mounted.place + "/g", O_RDWR))
                defer { for descriptor in [first, second] { close(descriptor) } }
                try mounted.set(rule, "f")
                for (call, error) in calls { #expect(try mounted.call(call, "f") == error, "\(rule) \(call)") }
                #expect(mounted.text("g") == "f")
                if rule == "--protect" {
                    for descriptor in [first, second] { #expect(write(descriptor, "x", 1) == -1 && errno == EROFS) }
                }
                try mounted.set("--no-rules")
                for descriptor in [first, second] { #expect(pwrite(descriptor, "f", 1, 0) == 1) }
                for name in ["f", "g"] { #expect(try mounted.call("write", name) == "OK") }
            }
        }

        @Test("A rule change judges each of many files of a directory", arguments: RuledMount.modes)
        func many(_ mode: String) throws {
            let files = (0..<40).map { "d/\($0).c" }
            let mounted = try RuledMount(mode, rules: [], files: files + ["d/secret", "d/kept", "d/linked", "d/gone"])
            #expect(try mounted.call("link", "d/linked", "d/kept2") == "OK")
            var open: [String: Int32] = [:]
            defer { for descriptor in open.values { close(descriptor) } }
            for name in files + ["d/secret", "d/kept", "d/linked", "d/gone"] {
                open[name] = Glibc.open(mounted.place + "/" + name, O_RDWR)
                #expect(pwrite(open[name]!, "x", 1, 0) == 1)
            }
            #expect(unlink(mounted.place + "/d/gone") == 0)
            try mounted.set("--hide", "secret", "--hide", "gone", "--protect", "kept*", "--protect", "7.c")
            var byte: UInt8 = 0
            for (name, descriptor) in open {
                let isHidden = ["d/secret", "d/gone"].contains(name)
                let isProtected = ["d/kept", "d/linked", "d/7.c"].contains(name)
                #expect((pread(descriptor, &byte, 1, 0) == 1) == !isHidden, "\(name)")
                let error = pwrite(descriptor, "y", 1, 0) == 1 ? 0 : errno
                #expect(error == (isHidden ? EACCES : isProtected ? EROFS : 0), "\(name)")
            }
            try mounted.set("--hide", "*.c", "--protect", "secret")
            for (name, descriptor) in open where !["d/secret", "d/gone"].contains(name) {
                #expect((pread(descriptor, &byte, 1, 0) == 1) == !name.hasSuffix(".c"), "\(name)")
            }
            #expect(try mounted.call("write", "d/kept") == "OK")
            #expect(try mounted.names(in: "d") == ["kept", "kept2", "linked", "secret"])
        }

        @Test("A rule that is taken back shows names at once", arguments: RuledMount.modes)
        func show(_ mode: String) throws {
            let mounted = try RuledMount(mode, rules: ["--only", "*.c"], files: ["a.c", "b.h", "d/e.h"])
            #expect(try mounted.names() == ["a.c", "d"] && mounted.names(in: "d") == [])
            #expect(try mounted.call("stat", "b.h") == "ENOENT")
            try mounted.set("--only", "*.c", "--only", "*.h")
            #expect(try mounted.names() == ["a.c", "b.h", "d"] && mounted.names(in: "d") == ["e.h"])
            #expect(mounted.text("b.h") == "b.h" && mounted.text("d/e.h") == "d/e.h")
            try mounted.set("--no-rules")
            try mounted.set("--hide", "b.h", "--hide", "/d/")
            #expect(try mounted.names() == ["a.c"])
            #expect(try mounted.call("stat", "d/e.h") == "ENOENT")
        }

        @Test("A working directory below a hidden directory gives EACCES", arguments: RuledMount.modes)
        func workingDirectory(_ mode: String) throws {
            let mounted = try RuledMount(mode, rules: [], files: ["d/e/f"])
            let child = try Child(["sh", "-c", "cd \"$1\"; echo ready; read x; cat f; echo status $?", "sh", mounted.place + "/d/e"])
            try child.expect("ready")
            try mounted.set("--hide", "d")
            child.send("go")
            try child.expect("status 1")
        }

        @Test(
            "Rules hold for the next daemon",
            arguments: [(Succession.Way.upgrade, "shared"), (.upgrade, "exclusive"), (.death, "shared"), (.death, "none")])
        func succession(_ way: (Succession.Way, cache: String)) throws {
            let scene = try Succession(way.0, cache: way.cache)
            for name in ["secret", "d/secret", "kept", "free"] { try RuledMount.make(name, in: scene.source) }
            let place = scene.mount + "/a"
            let (secret, free) = (try HeldPath(place + "/secret"), try HeldPath(place + "/free"))
            let kept = open(place + "/kept", O_RDWR | O_APPEND)
            defer { close(kept) }
            try scene.fixture.grantfs("set", "a", "--hide", "secret", "--protect", "kept").orThrow()
            try scene.replaceDaemon()
            #expect(secret.read() == EACCES && free.read() == 0)
            #expect(write(kept, "2", 1) == -1 && errno == EROFS)
            for name in ["secret", "d/secret"] { try expectCall("open", place + "/" + name, gives: "ENOENT") }
            try expectCall("write", place + "/kept", gives: "EROFS")
            try expectCall("create", place + "/d/secret", gives: "EACCES")
            #expect(try FileManager.default.contentsOfDirectory(atPath: place).sorted() == ["d", "file", "free", "kept"])
            try scene.fixture.grantfs("set", "a", "--no-rules").orThrow()
            try expectCall("open", place + "/secret", gives: "OK")
            #expect(write(kept, "3", 1) == 1)
        }

        @Test("Rules that change while no daemon serves hold before the next call", arguments: ["shared", "none"])
        func betweenDaemons(_ cache: String) throws {
            let scene = try Succession(.death, cache: cache, switches: ["GRANTFS_TEST_RECOVER": "held begin"])
            for name in ["secret", "kept"] { try RuledMount.make(name, in: scene.source) }
            let place = scene.mount + "/a"
            let secret = try HeldPath(place + "/secret")
            try scene.killAndHold()
            let words = ["set", "a", "--hide", "secret", "--protect", "kept", "--timeout", "60"]
            let setting = try Child([Programs.grantfs] + words, environment: scene.fixture.environment)
            try scene.fixture.wait(until: "the rules are recorded") { try scene.fixture.grantfs("list", "--json").text.contains("secret") }
            scene.goOn()
            #expect(setting.wait(within: 60) == 0)
            #expect(secret.read() == EACCES)
            try expectCall("write", place + "/kept", gives: "EROFS")
            try expectCall("open", place + "/secret", gives: "ENOENT")
        }
    }
}
