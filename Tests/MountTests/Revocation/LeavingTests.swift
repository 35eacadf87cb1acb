import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The host moves something out of a granted directory while a program holds it: it has left the grant, and nothing else has.
    @Suite("Files moved out of a granted directory") struct LeavingTests {
        static let warm = Situation.all.filter { !$0.cold }

        @Test("A directory moved out of a grant is refused with its contents", arguments: warm)
        func directory(_ situation: Situation) throws {
            let place = try Place(situation)
            for name in ["D", "stays"] { try Probe.prepare(try place.fixture.directory("source/a/" + name), for: situation.caller) }
            let native = try Probe.native(in: try place.fixture.directory("native"), as: situation.caller)
            let without: Set<String> = situation.cache == "none" ? ["SKIP", "ENODEV"] : []
            let held = try Probe(below: place.grant + "/D", as: situation.caller)
            let stays = try Probe(below: place.grant + "/stays", as: situation.caller)
            ProbedMount.expectNative(try held.attempt(), native, "before", without: without)

            try place.move("D", to: "D")
            var results: [AccessResult] = []
            try place.fixture.wait(until: "what was moved is refused") {
                results = try held.attempt()
                return !ProbedMount.areNotRefused(Self.fromHandles(results), native, situation.cache)
            }
            results = try held.attempt()
            ProbedMount.expectRefused(Self.fromHandles(results), native, "moved", cache: situation.cache)
            for result in results where ["path", "inotify"].contains(result.held) {
                #expect(!["OK", "WRONG"].contains(result.errno), "\(result.row) gives \(result.errno) by the old path")
            }
            ProbedMount.expectNative(try stays.attempt(), native, "what stays", without: without)
            for result in try held.letGo() + stays.letGo() {
                #expect(result.errno == "OK", "close never fails: \(result.held) gives \(result.errno)")
            }
        }

        /// Results that do not use a path from the root, where the name is gone.
        private static func fromHandles(_ results: [AccessResult]) -> [AccessResult] {
            results.filter { !["path", "inotify"].contains($0.held) }
        }

        @Test(
            "A directory moved out of a grant is refused within 300 ms",
            .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
        func atOnce() throws {
            let place = try Place(Situation())
            var quickest = Double.infinity
            for round in 1...8 where quickest > 300 {
                try place.file("D\(round)/f")
                let holder = try place.holder("D\(round)", "f")
                #expect(try holder.isFree)
                try place.move("D\(round)", to: "D\(round)")
                let moved = Machine.milliseconds
                try place.fixture.wait(until: "it is refused") { try holder.isRefused }
                quickest = min(quickest, Machine.milliseconds - moved)
            }
            #expect(quickest < 300, "\(quickest) ms")
        }

        @Test("A directory moved out of a grant does not show files added later", arguments: warm)
        func later(_ situation: Situation) throws {
            let place = try Place(situation)
            try place.file("1/2/3/f")
            try place.file("beside")
            let (deep, top) = (try place.holder("1/2/3", "f"), try place.holder("1", "2/3/f"))
            let beside = try place.holder("", "beside")
            #expect(try deep.isFree && top.isFree)
            try place.move("1", to: "1")
            try place.file("1/2/3/later", in: place.outside)
            try place.file("1/later", in: place.outside)
            try place.fixture.wait(until: "both are refused") { try deep.isRefused && top.isRefused }
            #expect(try beside.isFree)
            #expect(try String(contentsOfFile: place.outside + "/1/2/3/f", encoding: .utf8).hasPrefix("iw"))
        }

        @Test("An open and mapped file that is moved out of a grant is refused", arguments: warm)
        func file(_ situation: Situation) throws {
            let place = try Place(situation)
            for name in ["d/f", "d/g"] { try place.file(name) }
            let (holder, other) = (try place.holder("d", "f"), try place.holder("d", "g"))
            try place.move("d/f", to: "f")
            try place.fixture.wait(until: "the file is refused") {
                let found = try holder.look()
                return ["read", "write", "again"].allSatisfy { found[$0] == "EACCES" } && found["map"] == "SIGBUS"
            }
            pause(milliseconds: 1200)
            let found = try holder.look()
            #expect(["read", "write", "again"].allSatisfy { found[$0] == "EACCES" } && found["list"] == "OK", "\(found)")
            #expect(try other.isFree)
        }

        @Test(
            "A file that returns to its grant opens again, and old handles stay refused",
            arguments: warm.filter { $0.cache != "exclusive" })
        func back(_ situation: Situation) throws {
            let place = try Place(situation)
            try place.file("D/f")
            let old = try place.holder("D", "f")
            try place.move("D", to: "D")
            try place.fixture.wait(until: "it is refused") { try old.isRefused }
            try place.move("D", to: "D", isBack: true)
            try place.fixture.wait(until: "it is found again") {
                try Command.run(["cat", place.grant + "/D/f"], as: situation.caller).status == 0
            }
            let new = try place.holder("D", "f")
            #expect(try new.isFree)
            #expect(try old.isRefused)
            pause(milliseconds: 1200)
            #expect(try new.isFree && old.isRefused)
        }

        @Test("A file that is deleted, replaced or renamed within its grant is not refused", arguments: warm)
        func within(_ situation: Situation) throws {
            let place = try Place(situation)
            for name in ["d/renamed", "d/replaced", "d/deleted", "e/f", "gone/f", "new"] { try place.file(name) }
            let files = try ["renamed", "replaced", "deleted"].map { try place.holder("d", $0) }
            let moved = try place.holder("e", "f")
            let gone = try place.holder("gone", "f")
            let script = """
                cd "$1"
                mkdir -p deep/er
                mv e deep/er/E
                mv d/renamed deep/f
                mv new d/replaced
                rm d/deleted
                rm -r gone
                """
            try Command.shell(script, place.source, as: situation.owner)
            for _ in 0..<5 {
                pause(milliseconds: 400)
                for (holder, name) in zip(files, ["renamed", "replaced", "deleted"]) {
                    let found = try holder.look()
                    #expect(found["read"] == "OK" && found["write"] == "OK" && found["map"] == "OK", "\(name): \(found)")
                }
                #expect(try moved.isFree, "moved within")
                let found = try gone.look()
                #expect(found["read"] == "OK" && found["map"] == "OK" && found["stat"] == "OK", "deleted with its directory: \(found)")
            }
        }

        @Test("A file is refused only after its last name in the grant was moved out", arguments: warm)
        func links(_ situation: Situation) throws {
            let place = try Place(situation)
            for name in ["d/both", "d/one", "d/removed"] { try place.file(name) }
            let script = """
                cd "$1"
                ln d/both d/other
                ln d/one "$2/elsewhere"
                ln d/removed "$2/kept"
                """
            try Command.shell(script, place.source, place.outside, as: situation.owner)
            let (both, one, removed) = (try place.holder("d", "both"), try place.holder("d", "one"), try place.holder("d", "removed"))
            try place.move("d/both", to: "both")
            try place.move("d/one", to: "one")
            try Command.run(["rm", place.source + "/d/removed"]).orThrow()
            try place.fixture.wait(until: "the file with no name in the grant is refused") { try one.look()["read"] == "EACCES" }
            for _ in 0..<4 {
                pause(milliseconds: 400)
                for holder in [both, removed] {
                    let found = try holder.look()
                    #expect(found["read"] == "OK" && found["write"] == "OK" && found["map"] == "OK", "\(found)")
                }
            }
        }

        @Test("A file that is moved out of its grant keeps acknowledged writes", arguments: ["shared", "exclusive"])
        func writes(cache: String) throws {
            let place = try Place(Situation(cache: cache))
            try place.file("D/f")
            let writer = try #require(FileHandle(forUpdatingAtPath: place.grant + "/D/f"))
            let stores = try Place.dirty(place)
            var count = 0
            let block = Data(repeating: 0x5A, count: 4096)
            for _ in 0..<200 {
                try writer.write(contentsOf: block)
                count += 1
            }
            try place.move("D", to: "D")
            let deadline = Machine.milliseconds + 30_000
            while Machine.milliseconds < deadline {
                do { try writer.write(contentsOf: block) } catch { break }
                count += 1
                usleep(500)
            }
            #expect(Machine.milliseconds < deadline, "writing was never refused")
            try place.fixture.wait(until: "what was written is in the file") {
                try Data(contentsOf: URL(fileURLWithPath: place.outside + "/D/f")) == Data(repeating: 0x5A, count: count * 4096)
            }
            try place.fixture.wait(until: "what was stored is in the file") {
                let bytes = try Data(contentsOf: URL(fileURLWithPath: place.outside + "/D/stored"))
                return stride(from: 0, to: bytes.count, by: 4096).allSatisfy { bytes[$0] == UInt8(ascii: "Z") }
            }
            _ = stores
        }

        @Test("A file moved out of an inner grant is refused there and served by the outer one", arguments: ["shared", "none"])
        func overlapping(cache: String) throws {
            let place = try Place(Situation(cache: cache))
            try place.file("D/f")
            try place.fixture.grant(place.fixture.base + "/source", name: "outer")
            // Grants show at once. Their overlap is found within a second.
            try place.fixture.wait(until: "the outer grant shows") {
                FileManager.default.fileExists(atPath: place.mountpoint + "/outer/a/D/f")
            }
            pause(milliseconds: 1500)
            let inner = try place.holder("D", "f")
            let outer = try Holder(place.mountpoint + "/outer/a/D", "f", as: .current)
            try Command.run(["mv", place.mountpoint + "/outer/a/D", place.mountpoint + "/outer/D"]).orThrow()
            try place.fixture.wait(until: "it has left the inner grant") { try inner.isRefused }
            #expect(try outer.isFree)
        }

        @Test("A file that is moved out of its grant loses its locks and waiters", arguments: ["fcntl", "flock"])
        func locks(kind: String) throws {
            let place = try Place(Situation())
            try place.file("D/f")
            let holder = try Probe.role(["lock", place.grant + "/D/f", kind, "try"])
            try holder.expect("OK")
            let waiter = try Probe.role(["lock", place.grant + "/D/f", kind, "wait"])
            try waiter.expect("waiting")
            pause(milliseconds: 100)
            try place.move("D", to: "D")
            try waiter.expect("EACCES")
            try place.fixture.wait(until: "the lock has ended for the host") {
                let native = try Probe.role(["lock", place.outside + "/D/f", kind, "try"])
                return native.line() == "OK"
            }
        }

        @Test(
            "A move of the granted directory refuses no file in it", arguments: warm)
        func grantMoves(_ situation: Situation) throws {
            let place = try Place(situation)
            try place.file("D/f")
            let holder = try place.holder("D", "f")
            for round in 0..<6 {
                let (old, new) = round % 2 == 0 ? (place.source, place.outside + "/A") : (place.outside + "/A", place.source)
                #expect(rename(old, new) == 0)
                for _ in 0..<3 {
                    pause(milliseconds: 150)
                    #expect(try holder.isFree)
                }
            }
        }
    }
}

/// A mount with one grant, and a directory outside it.
private struct Place {
    let fixture: MountFixture
    let situation: Situation
    let source: String
    let outside: String
    let mountpoint: String
    var grant: String { mountpoint + "/a" }

    init(_ situation: Situation) throws {
        self.situation = situation
        fixture = try MountFixture(owner: situation.owner)
        source = try fixture.source("a")
        outside = try fixture.directory("source/outside")
        chown(source, situation.caller.uid, situation.caller.gid)
        try fixture.grant(source)
        mountpoint = try fixture.mount(options: situation.options)
    }

    /// Makes a file, and its parent directories, as the caller's.
    func file(_ name: String, in directory: String? = nil) throws {
        let script = """
            cd "$1"
            mkdir -p "$(dirname "$2")"
            printf 'in' > "$2"
            head -c 8190 /dev/zero >> "$2"
            chown -R "$3" .
            """
        try Command.shell(script, directory ?? source, name, "\(situation.caller.uid):\(situation.caller.gid)")
    }

    func holder(_ directory: String, _ file: String) throws -> Holder { try Holder(grant + "/" + directory, file, as: situation.caller) }

    func move(_ name: String, to target: String, isBack: Bool = false) throws {
        let (from, to) = (source + "/" + name, outside + "/" + target)
        guard rename(isBack ? to : from, isBack ? from : to) == 0 else { throw TestFailure("rename: errno \(errno)") }
    }

    /// A process that has stored into a mapping of `D/stored`, and never syncs it.
    static func dirty(_ place: Place) throws -> Child {
        try Data(count: 64 * 4096).write(to: URL(fileURLWithPath: place.source + "/D/stored"))
        let child = try Probe.role(["dirty", place.grant + "/D/stored"])
        try child.expect("ready")
        return child
    }
}

/// The attacker that stays in a directory.
private final class Holder {
    private let child: Child

    init(_ directory: String, _ file: String, as identity: Identity) throws {
        child = try Child([Programs.attacker, "stay", directory, file, "later"], identity: identity)
        try child.expect("ready")
    }

    func look() throws -> [String: String] {
        child.send("look")
        guard let line = child.line() else { throw TestFailure("the holder has ended") }
        return Dictionary(
            line.split(separator: " ").map { field in
                let parts = field.split(separator: ":")
                return (String(parts[0]), String(parts[1]))
            }
        ) { $1 }
    }

    /// Everything but the missing file.
    var isFree: Bool { get throws { try look().allSatisfy { $0.key == "later" ? $0.value == "ENOENT" : $0.value == "OK" } } }
    var isRefused: Bool { get throws { try look().allSatisfy { $0.value == ($0.key == "map" ? "SIGBUS" : "EACCES") } } }
}
