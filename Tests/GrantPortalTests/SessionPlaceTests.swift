import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    /// The default place of the documents: `doc` in $XDG_RUNTIME_DIR, of any kind.
    @Suite struct SessionPlaces {
        enum Runtime: String, CaseIterable, CustomTestStringConvertible {
            case unset, empty, relative, missing, file, link, linkWithSlash, anothers, everybodys, groups, belowAnothers, belowEverybodys
            var testDescription: String { rawValue }
        }

        /// The file at `doc`.
        enum Doc: String, CaseIterable, CustomTestStringConvertible {
            case file, link, linkToNothing, full, anothers, everybodys, mounted, deadMount
            var testDescription: String { rawValue }
        }

        /// Root and a plain user.
        static let owners: [Identity] = [.current] + (Identity.isRoot && Machine.usersCanMount ? [Machine.plainUser].compactMap { $0 } : [])

        private func expectRefusal(_ session: PortalSession, _ text: String, _ path: String, unsets: Bool = false) throws {
            let before = session.fixture.mountpoints
            let words = (unsets ? ["env", "-u", "XDG_RUNTIME_DIR"] : []) + [Programs.grantfs(for: session.fixture.owner), "portal"]
            let output = try Command.run(words, as: session.fixture.owner, environment: session.fixture.environment, within: 60)
            #expect(output.status != 0 && output.errors.contains(text) && output.errors.contains(path), "\(output)")
            #expect(session.fixture.mountpoints == before)
            #expect(try !session.hasOwner("org.freedesktop.portal.Documents"))
        }

        private func contents(_ path: String) -> String? { try? String(contentsOfFile: path, encoding: .utf8) }

        private func chown(_ path: String, _ owner: Identity) { Glibc.chown(path, owner.uid, owner.gid) }

        @Test(
            "An unsafe runtime directory is refused and left unchanged",
            arguments: Runtime.allCases, owners)
        func runtime(kind: Runtime, owner: Identity) throws {
            let session = try PortalSession(owner: owner)
            let place = session.fixture.base + "/place"
            let outside = try session.fixture.directory("outside/run")
            chmod(outside, 0o700)
            switch kind {
            case .file:
                try Data().write(to: URL(fileURLWithPath: place))
                chown(place, owner)
            case .link, .linkWithSlash: symlink(outside, place)
            case .anothers, .everybodys, .groups:
                _ = try session.fixture.directory("place")
                chmod(place, kind == .everybodys ? 0o1777 : kind == .groups ? 0o770 : 0o700)
                if kind == .anothers {
                    try #require(Identity.isRoot || Glibc.chown(place, 4711, 4711) == 0)
                    Glibc.chown(place, 4711, 4711)
                    // So that a plain user may look into it.
                    chmod(place, 0o755)
                }
            case .belowAnothers, .belowEverybodys:
                if kind == .belowAnothers, !Identity.isRoot { return }
                chmod(try session.fixture.directory("place/run"), 0o700)
                chmod(place, kind == .belowAnothers ? 0o755 : 0o777)
                if kind == .belowAnothers { try #require(Glibc.chown(place, 4711, 4711) == 0) }
            default: break
            }
            session.fixture.switches["XDG_RUNTIME_DIR"] =
                switch kind {
                case .unset, .empty: ""
                case .relative: "run"
                case .linkWithSlash: place + "//"
                case .belowAnothers, .belowEverybodys: place + "/run"
                default: place
                }
            let (text, path) =
                switch kind {
                case .unset, .empty: ("is not set", "XDG_RUNTIME_DIR")
                case .relative: ("is not an absolute path", "run")
                case .missing: ("there is no such directory", place)
                case .file: ("it is not a directory", place)
                case .link, .linkWithSlash: ("it is a symbolic link", place)
                case .anothers: ("it belongs to another user, of the number 4711", place)
                case .everybodys: ("others may write to it, by its mode 01777", place)
                case .groups: ("others may write to it, by its mode 0770", place)
                case .belowAnothers: ("\(place), above it, belongs to another user, of the number 4711", place + "/run")
                case .belowEverybodys: ("others may write to \(place), above it, by its mode 0777", place + "/run")
                }
            try expectRefusal(session, text, path, unsets: kind == .unset)
            #expect(access(outside + "/doc", F_OK) != 0 && access(place + "/doc", F_OK) != 0)
        }

        @Test(
            "An unsafe entry at `doc` is refused and left unchanged",
            arguments: Doc.allCases, owners)
        func doc(kind: Doc, owner: Identity) throws {
            if [.mounted, .deadMount].contains(kind), !Identity.isRoot { return }
            let session = try PortalSession(owner: owner)
            let doc = session.mountpoint
            let outside = try session.fixture.directory("outside/doc")
            var source: HangingSource?
            switch kind {
            case .file:
                try "text".write(toFile: doc, atomically: false, encoding: .utf8)
                chown(doc, owner)
            case .link: symlink(outside, doc)
            case .linkToNothing: symlink(outside + "/nothing", doc)
            case .full:
                _ = try session.fixture.directory("run/doc")
                try "text".write(toFile: doc + "/file", atomically: false, encoding: .utf8)
            case .anothers, .everybodys, .mounted:
                _ = try session.fixture.directory("run/doc")
                if kind == .everybodys { chmod(doc, 0o777) }
                if kind == .mounted { try Command.run(["mount", "-t", "tmpfs", "none", doc]).orThrow() }
                if kind == .anothers { try #require(!Identity.isRoot || Glibc.chown(doc, 4711, 4711) == 0) }
                if kind == .anothers, !Identity.isRoot { return }
            case .deadMount:
                let made = try HangingSource("dead", in: session.fixture)
                _ = try session.fixture.directory("run/doc")
                try Command.run(["mount", "--bind", made.directory, doc]).orThrow()
                made.end()
                source = made
                try session.fixture.wait(until: "the mount is dead") { access(doc, F_OK) != 0 && errno == ENOTCONN }
            }
            let text =
                switch kind {
                case .file: "it is not a directory"
                case .link, .linkToNothing: "it is a symbolic link"
                case .full: "it is not empty"
                case .anothers: "it belongs to another user, of the number 4711"
                case .everybodys: "others may write to it, by its mode 0777"
                case .mounted: "something of type tmpfs is mounted there already"
                // Of another user's mount the kernel does not say that it is dead.
                case .deadMount: owner == .current ? "a dead mount of type fuse" : "something of type fuse"
                }
            try expectRefusal(session, text, doc)
            if kind == .deadMount { #expect(access(doc, F_OK) != 0 && errno == ENOTCONN) }
            if [.mounted, .deadMount].contains(kind) { try Command.run(["umount", "-l", doc]).orThrow() }
            #expect(try FileManager.default.contentsOfDirectory(atPath: outside).isEmpty)
            if kind == .file { #expect(contents(doc) == "text") }
            if kind == .full { #expect(contents(doc + "/file") == "text") }
            withExtendedLifetime(source) {}
        }

        @Test("Documents are shown through links and trailing slashes in the runtime path", arguments: owners)
        func throughLinks(owner: Identity) throws {
            let session = try PortalSession(owner: owner)
            symlink(session.fixture.base, session.fixture.base + "/link")
            session.fixture.switches["XDG_RUNTIME_DIR"] = session.fixture.base + "/link/run//"
            try session.start()
            let id = try session.host.add(try session.file()).id
            #expect(try session.host.read("\(session.mountpoint)/\(id)/report.txt").texts == ["old\n"])
            try session.stop()
            #expect(session.fixture.mountpoints.isEmpty)
        }

        @Test(
            "With `--replace` the portal waits for the old mount to go",
            .enabled(if: Identity.isRoot, "needs root"))
        func waitsForTheOthersEnd() throws {
            let session = try PortalSession()
            let doc = try session.fixture.directory("run/doc")
            chmod(doc, 0o700)
            try Command.run(["mount", "-t", "tmpfs", "none", doc]).orThrow()
            try session.launch(["--replace"])
            try session.fixture.wait(until: "the portal has the name") { try session.hasOwner("org.freedesktop.portal.Documents") }
            usleep(500_000)
            try Command.run(["umount", doc]).orThrow()
            try session.waitForAnswer()
            let id = try session.host.add(try session.file()).id
            #expect(try session.host.read("\(doc)/\(id)/report.txt").texts == ["old\n"])
        }

        /// A FUSE filesystem of the user 65534 for all users. Each of its directories appears as
        /// the caller's own, without write permission for others.
        private static let server = """
            import ctypes, os, struct, sys
            device = os.open('/dev/fuse', os.O_RDWR)
            options = f'fd={device},rootmode=40700,user_id=65534,group_id=65534,allow_other'
            if ctypes.CDLL(None).mount(b'server', sys.argv[1].encode(), b'fuse', 6, options.encode()): sys.exit('it is not mounted')
            print('mounted', flush=True)
            def attributes(node): return struct.pack('<6Q10I', node, 0, 0, 0, 0, 0, 0, 0, 0, 0o040700, 2, int(sys.argv[2]), 0, 0, 4096, 0)
            while True:
                try: request = os.read(device, 1 << 18)
                except OSError: break
                code, unique, node = struct.unpack('<IQQ', request[4:24])
                if code == 26: answer = struct.pack('<4I2H2I2H8I', 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, *[0] * 8)
                elif code == 1: answer = struct.pack('<4Q2I', node + 1, 0, 0, 0, 0, 0) + attributes(node + 1)
                elif code == 3: answer = struct.pack('<Q2I', 0, 0, 0) + attributes(node)
                elif code in (2, 42): continue
                else: answer = None
                result = struct.pack('<IiQ', 16 + len(answer or b''), 0 if answer else -38, unique) + (answer or b'')
                try: os.write(device, result)
                except OSError: pass
            """

        @Test(
            "A runtime directory in another user's filesystem is refused",
            .enabled(if: Identity.isRoot && Machine.hasFUSE, "needs root and /dev/fuse"))
        func anothersServer() throws {
            let session = try PortalSession()
            let place = try session.fixture.directory("served")
            let server = try Child(["/usr/bin/python3", "-c", Self.server, place, "\(geteuid())"])
            defer {
                _ = try? Command.run(["umount", "-l", place])
                server.kill()
            }
            try server.expect("mounted")
            session.fixture.switches["XDG_RUNTIME_DIR"] = place + "/run"
            try expectRefusal(session, "\(place) is in a filesystem that another user serves", place + "/run")
        }

        @Test("The portal mounts at the place that `--mountpoint` names")
        func named() throws {
            let session = try PortalSession()
            let place = session.fixture.base + "/named"
            session.fixture.switches["XDG_RUNTIME_DIR"] = ""
            try session.launch(["--mountpoint", place])
            try session.fixture.wait(until: "it is mounted") { session.fixture.mountpoints == [place] }
            try session.stop()
            #expect(session.fixture.mountpoints.isEmpty)
        }
    }
}
