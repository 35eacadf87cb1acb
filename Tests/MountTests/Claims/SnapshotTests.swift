import Foundation
import TestSupport
import Testing

extension MountTests {
    @Suite("Snapshots of claimed items") struct ClaimedSnapshot {
        private let fixture: MountFixture
        private let source: String
        private let mount: String
        private let place: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("docs")
            place = try fixture.directory("place")
            try fixture.grant(source)
            mount = try fixture.mount() + "/docs"
        }

        private struct Made: Decodable {
            struct Copy: Decodable { let path: String }
            let directory: String
            let copies: [Copy]
            let files: Int
            let bytes: Int
        }

        /// All names in the place, hidden ones as well.
        private var left: [String] { get throws { try FileManager.default.contentsOfDirectory(atPath: place).sorted() } }

        /// A description of a tree without inode numbers and block positions: sizes, holes, owners,
        /// modes, times, links, ACLs, attributes, data.
        private func described(_ tree: String) throws -> String {
            try Command.shell(
                """
                cd "$1"; find . -printf '%P %y %m %U:%G %s %T@ %n %l\\n' | sort
                find . -type f -printf '%P %s %b\\n' | awk '{ n = $NF * 512; $NF = n < $(NF - 1) / 2 ? "sparse" : "full"; print }' | sort; find . ! -type l -print0 | sort -z | xargs -0 getfacl -n 2>/dev/null
                find . -print0 | sort -z | xargs -0 getfattr -h -d -m - -e hex 2>/dev/null; find . -type f -print0 | sort -z | xargs -0 sha256sum
                [ a -ef d/other ] && echo one
                """, tree
            ).orThrow().text
        }

        private static let tree = """
            cd "$1"; mkdir -p d/e closed; echo text >a; ln a d/other; ln -s ../a d/link; ln -s nowhere dangling; mkfifo fifo
            truncate -s 50M sparse; printf x | dd of=sparse bs=1 seek=30000000 conv=notrunc status=none; head -c 300000 /dev/urandom >d/e/data
            setfattr -n user.note -v something a; setfattr -n user.of -v directory d; touch -d 2001-02-03T04:05:06.789 a d/e/data d closed
            touch -h -d 2002-02-02 dangling; chmod 1777 d/e; chmod 555 closed; printf 'name\\n' >"$(printf 'odd\\n\\377name')"
            """

        @Test("A snapshot reproduces data, holes, modes, owners, times, links and attributes")
        func everything() throws {
            try Command.shell(Self.tree, source).orThrow()
            if Identity.isRoot {
                try Command.shell(
                    """
                    cd "$1"; mknod null c 1 3; chown 1234:2345 d/e/data; chmod 6755 d/e/data; setfattr -n trusted.t -v 1 a
                    ! command -v setfacl >/dev/null || { setfacl -m u:1234:r a; setfacl -d -m g:2345:rwx d; }
                    """, source
                ).orThrow()
                // What the place has for new files is not for the copies.
                _ = try Command.shell("setfacl -d -m u:4321:rwx \"$1\" || true", place)
            }
            let before = try described(source)
            let made = try fixture.grantfs("coordinate", "read", "docs", "--snapshot", place + "/snap", "--json").orThrow().decoded(
                as: Made.self)
            #expect(made.directory == place + "/snap" && made.copies.map(\.path) == [place + "/snap/docs"])
            #expect(try described(place + "/snap/docs") == before)
            #expect(try described(source) == before, "the original is as it was, its times of access included")
            let count = try Command.shell("find \"$1\" -printf x | wc -c", place + "/snap/docs").trimmed
            #expect(Int(count).map { $0 >= made.files } == true && made.files > 10 && made.bytes > 300_000)
            var status = stat()
            #expect(stat(place + "/snap", &status) == 0 && status.st_mode & 0o777 == 0o700)
        }

        @Test(
            "A snapshot by a plain user belongs to that user, without foreign set-id bits",
            .enabled(if: Machine.usersCanMount, "plain users cannot mount here"))
        func plainUser() throws {
            let fixture = try MountFixture(owner: #require(Machine.plainUser))
            let source = try fixture.source("docs")
            try Command.shell(Self.tree, source, as: fixture.owner).orThrow()
            try fixture.grant(source)
            try fixture.mount()
            try Command.shell("echo x >\"$1/closed/y\" 2>/dev/null || true", source, as: fixture.owner)
            if Identity.isRoot { try Command.shell("echo roots >\"$1/strange\"; chmod 4755 \"$1/strange\"", source).orThrow() }
            let snapshot = fixture.base + "/place/snap"
            try fixture.directory("place")
            try fixture.grantfs("coordinate", "read", "docs", "--snapshot", snapshot).orThrow()
            let owners = try Command.shell("find \"$1\" -printf '%U\\n' | sort -u", snapshot).lines
            #expect(owners == ["\(fixture.owner.uid)"])
            let modes = try Command.shell("stat -c %a \"$1\"/docs/closed \"$1\"/docs/d/e; stat -c %a \"$1\"/docs/strange || true", snapshot)
                .lines
            #expect(modes == ["555", "1777"] + (Identity.isRoot ? ["755"] : []))
        }

        @Test("A snapshot under full load has whole files, and no writer fails")
        func underLoad() throws {
            try fixture.grantfs("set", "docs", "--coordination", "mandatory").orThrow()
            let load = try Child([Programs.claimProbe, "-", "load", mount, "6"])
            try load.expect("begun")
            try fixture.wait(until: "all writers have written", within: 60) {
                (0..<6).allSatisfy { FileManager.default.contents(atPath: "\(source)/whole\($0)")?.count == 65_536 }
            }
            for round in 0..<3 {
                pause(milliseconds: 200)
                // While the command works on the copy, the original changes: the claim is over.
                let output = try fixture.grantfs(
                    "coordinate", "read", "docs", "--snapshot", "\(place)/\(round)", "--", "bash", "-c",
                    "a=$(stat -c %Y.%y \"$1\"/saved*); for i in $(seq 100); do [ \"$a\" = \"$(stat -c %Y.%y \"$1\"/saved*)\" ] || exit 7; sleep 0.1; done",
                    "bash", source, within: 120)
                #expect(output.status == 7, "\(output)")
            }
            load.closeInput()
            try load.expect("0 errors []")
            for round in 0..<3 {
                for number in 0..<6 {
                    let bytes = try Data(contentsOf: URL(fileURLWithPath: "\(place)/\(round)/docs/whole\(number)"))
                    #expect(bytes.count == 65_536 && Set(bytes).count == 1, "round \(round)")
                }
            }
        }

        @Test(
            "A snapshot shares its data with the original on btrfs and xfs", .enabled(if: Identity.isRoot, "needs root"),
            arguments: [Volume.Kind.btrfs, .xfs])
        func shared(kind: Volume.Kind) throws {
            guard Volume.kinds.contains(kind) else { return }
            let volume = try Volume(kind, at: "volume", in: fixture)
            mkdir(volume.place + "/tree", 0o755)
            // More than half of it.
            try Command.shell("head -c 180M /dev/zero | tr '\\0' x >\"$1/tree/big\"; sync -f \"$1/tree/big\"", volume.place).orThrow()
            try fixture.grant(volume.place + "/tree", view: "other")
            try fixture.mount("other", at: "other")
            try fixture.grantfs("coordinate", "read", "tree", "--snapshot", volume.place + "/snap").orThrow()
            #expect(try Command.run(["cmp", volume.place + "/tree/big", volume.place + "/snap/tree/big"]).status == 0)
        }

        @Test("A snapshot copies a deep tree with few descriptors")
        func deep() throws {
            let way = String(repeating: "/d", count: 700)
            try Command.shell("mkdir -p \"$1$2\" && echo deep >\"$1$2/file\"", source, way).orThrow()
            // ulimit -n: what bash itself needs is in it.
            try Command.shell(
                "ulimit -n 64; GRANTFS_STORE=\"$1\" exec \"$2\" coordinate read docs --snapshot \"$3\"", fixture.store, Programs.grantfs,
                place + "/snap"
            ).orThrow()
            #expect(try Command.run(["cat", place + "/snap/docs" + way + "/file"]).text == "deep\n")
        }

        @Test("A snapshot omits filesystems mounted in the tree", .enabled(if: Identity.isRoot, "needs root"))
        func mountedInside() throws {
            mkdir(source + "/inside", 0o700)
            try fixture.mountOther(["mount", "-t", "tmpfs", "none"], at: source + "/inside")
            try Data("other".utf8).write(to: URL(fileURLWithPath: source + "/inside/file"))
            try Data("own".utf8).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grantfs("coordinate", "read", "docs", "--snapshot", place + "/snap").orThrow()
            #expect(try FileManager.default.subpathsOfDirectory(atPath: place + "/snap").sorted() == ["docs", "docs/file", "docs/inside"])
        }

        /// Enough to be at work for a while.
        private func fill() throws {
            try Command.shell("cd \"$1\"; for d in $(seq 8); do mkdir $d; seq 500 | split -l 1 -a 3 -d - $d/; done", source).orThrow()
        }

        @Test("An interrupted snapshot is complete or leaves no files", arguments: ["SIGINT", "SIGTERM", "revoke", "daemon"])
        func interrupted(by what: String) throws {
            try fill()
            let words = [Programs.grantfs, "coordinate", "read", "docs", "--snapshot", place + "/snap", "--json", "--", "echo", "done"]
            let child = try Child(["sh", "-c", "exec \"$@\" 2>&1", "sh"] + words, environment: fixture.environment)
            try child.expect("{\"event\":\"granted\"}")
            switch what {
            case "SIGINT": kill(child.pid, SIGINT)
            case "SIGTERM": kill(child.pid, SIGTERM)
            case "revoke": try fixture.revoke("docs")
            default: try fixture.killDaemon(at: fixture.base + "/mount")
            }
            let status = try #require(child.wait(within: 60))
            let expected = what == "SIGINT" ? -SIGINT : what == "SIGTERM" ? -SIGTERM : 1
            // It may be complete by then: the signal ends the later steps, or the command.
            let left = try left
            if left == ["snap"] {
                #expect(try FileManager.default.subpathsOfDirectory(atPath: place + "/snap").count == 4_009)
                #expect(status == 0 || what.hasPrefix("SIG") && [expected, 128 - expected].contains(status), "\(status)")
            } else {
                #expect(status == expected && left.isEmpty, "\(status) \(left)")
            }
        }

        @Test("A snapshot reports its progress in events")
        func events() throws {
            try fill()
            let output = try fixture.grantfs("coordinate", "read", "docs", "--snapshot", place + "/snap", "--json", "--", "true").orThrow()
            struct Event: Decodable {
                let event: String
                let done: UInt64?
                let files: UInt64?
            }
            let events = try output.errors.split(separator: "\n").map { try JSONDecoder().decode(Event.self, from: Data($0.utf8)) }
            #expect(events.first?.event == "granted" && events.last?.event == "copied")
            let copying = events.filter { $0.event == "copying" }
            #expect(copying.last?.files == 4_009 && copying.last?.done == 8 * 1892)
            #expect(zip(copying, copying.dropFirst()).allSatisfy { $0.files! <= $1.files! && $0.done! <= $1.done! })
        }

        @Test("A snapshot shows its progress on a terminal", .enabled(if: Machine.offers("script"), "script is not installed"))
        func terminal() throws {
            try fill()
            let line = "\"\(Programs.grantfs)\" coordinate read docs --snapshot \"\(place)/snap\""
            let output = try Command.run(["script", "-qec", line, "/dev/null"], environment: fixture.environment).orThrow()
            #expect(output.text.contains("grantfs: copying ") && output.text.contains(" files, "), "\(output)")
            // The line is cleared before the output.
            #expect(output.text.contains("\u{1B}[K\(place)/snap/docs"), "\(output)")
        }

        @Test("A snapshot never follows a link that replaces a directory")
        func swapped() throws {
            let secret = try fixture.directory("secret")
            for name in ["a", "b", "c"] { try Data("secret".utf8).write(to: URL(fileURLWithPath: "\(secret)/\(name)")) }
            mkdir(source + "/d", 0o755)
            for name in ["a", "b", "c"] { try Data("own".utf8).write(to: URL(fileURLWithPath: "\(source)/d/\(name)")) }
            try Data("own".utf8).write(to: URL(fileURLWithPath: source + "/f"))
            let swapper = try Child([
                "bash", "-c",
                "cd \"$1\"; echo begun; while :; do mv -T d x; ln -s \"$2\" d; rm d; mv -T x d; mv f y; ln -s \"$2/a\" f; rm f; mv y f; done",
                "bash", source, secret,
            ])
            try swapper.expect("begun")
            var made = 0
            // Programs without coordination change the files during the copy. A copy may fail, but
            // shows no ungranted data.
            for round in 0..<40 where try fixture.grantfs("coordinate", "read", "docs", "--snapshot", "\(place)/\(round)").status == 0 {
                made += 1
            }
            swapper.kill()
            #expect(made > 0)
            #expect(try Command.run(["grep", "-rl", "secret", place]).text == "")
            #expect(try Command.run(["grep", "-rl", "own", place]).lines.isEmpty == false)
        }

        @Test("A snapshot is refused for writing claims and existing places")
        func refusals() throws {
            func status(_ words: String...) throws -> Int32 { try fixture.grantfs(["coordinate"] + words).status }
            #expect(try status("write", "docs", "--snapshot", place + "/snap") == 2)
            #expect(try status("read", "docs", "--snapshot", place + "/snap", "--for", "metadata") == 2)
            #expect(try status("read", "docs", "--for", "uploading", "--", "true") == 2)
            #expect(try status("read", fixture.base + "/outside", "--snapshot", place + "/snap") == 1)
            #expect(try status("read", "docs", "--snapshot", place) == 1)
            #expect(try status("read", "docs", "--snapshot", source + "/in") == 2)
            #expect(try status("read", "docs", "--snapshot", mount + "/in") == 1)
            #expect(try left.isEmpty && FileManager.default.contentsOfDirectory(atPath: source).isEmpty)
        }
    }
}
