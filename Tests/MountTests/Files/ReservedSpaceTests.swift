import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A filesystem reserves space for callers that may exceed its limits (CAP_SYS_RESOURCE, a
    /// user, a group). A mount gives a caller the same reserve.
    @Suite(
        .enabled(
            if: Identity.isRoot && Machine.plainUser != nil && Command.exists("python3") && Command.exists("mkfs.ext4"),
            "needs root, a plain user, python3 and mkfs.ext4"))
    struct ReservedSpace {
        /// Whether root may exceed limits here at all: CAP_SYS_RESOURCE, capabilities(7).
        private static let mayExceed: Bool = {
            let line = Processes.kernelText("/proc/self/status").split(separator: "\n").first { $0.hasPrefix("CapEff:") }
            return line.flatMap { UInt64($0.dropFirst(7).trimmingCharacters(in: .whitespaces), radix: 16) }.map { $0 >> 24 & 1 != 0 }
                ?? false
        }()

        /// Fills the file system by one kind of call, and says which error ended it. Arguments: the directory, the call.
        private static let fill = """
            import ctypes, errno, mmap, os, sys
            os.chdir(sys.argv[1])
            what = sys.argv[2]
            libc = ctypes.CDLL(None, use_errno=True)
            count = 0
            def step(file):
                global count
                count += 1
                place = (count - 1) << 16
                if what == 'write': os.pwrite(file, b'x' * 65536, place)
                elif what == 'append': os.write(file, b'x' * 65536)
                elif what == 'allocate':
                    if libc.fallocate64(file, 0, ctypes.c_long(place), ctypes.c_long(65536)): raise OSError(ctypes.get_errno(), 'fallocate')
                elif what == 'copy':
                    if os.copy_file_range(source, file, 65536, 0, place) == 0: raise OSError(errno.EIO, 'nothing was copied')
                elif what == 'directories': os.mkdir(f'd{count}-' + 'n' * 200)
                elif what == 'links': os.symlink('t' * 3000, f'l{count}-' + 'n' * 200)
                elif what == 'attributes':
                    with open(f'a{count}', 'w') as one: os.setxattr(one.fileno(), 'user.a', (b'%d' % count).ljust(3000))
            flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if what == 'append' else 0)
            file = os.open('filled', flags, 0o666)
            if what == 'copy':
                source = os.open('source', os.O_RDWR | os.O_CREAT, 0o666)
                os.pwrite(source, b'x' * 65536, 0)
            try:
                while count < 100000:
                    step(file)
                    if what in ('write', 'append') and count % 16 == 0: os.fsync(file)
                print('full of room')
            except OSError as error:
                print(errno.errorcode[error.errno])
            try: os.close(file)
            except OSError: pass
            """

        /// How many blocks are free at all, of how many, both in the reserve and outside.
        private func free(_ volume: String) throws -> (free: Double, available: Double, all: Double) {
            let numbers = try Command.run(["stat", "-f", "-c", "%f %a %b", volume]).orThrow().trimmed.split(separator: " ").compactMap {
                Double($0)
            }
            return (numbers[0], numbers[1], numbers[2])
        }

        /// `reserve`: the user and the group that half of it is for.
        private func volume(_ fixture: MountFixture, _ name: String, reserve user: UInt32 = 0, _ group: UInt32 = 0) throws -> String {
            let (image, volume) = (fixture.base + "/\(name).image", try fixture.source(name))
            try Command.shell("truncate -s 24M \"$1\"; mkfs.ext4 -q -F -b 4096 -m 50 -i 2048 \"$1\"", image).orThrow()
            try fixture.mountOther(["mount", "-o", "loop,resuid=\(user),resgid=\(group)", image], at: volume)
            let place = volume + "/place"
            try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: false)
            chmod(place, 0o777)
            return volume
        }

        private func fill(_ directory: String, _ what: String, before: [String] = [], as user: Identity) throws -> String {
            try python(Self.fill, directory, what, before: before, as: user)
        }

        /// By way of a shell: the first program of that name may be one that only root may run.
        private func python(_ script: String, _ arguments: String..., before: [String] = [], as user: Identity) throws -> String {
            try Command.run(before + ["sh", "-c", "exec python3 \"$@\"", "sh", "-c", script] + arguments, as: user).orThrow().trimmed
        }

        private static let calls = ["write", "append", "allocate", "copy", "directories", "links", "attributes"]

        @Test(
            "Reserved blocks stay free when a user fills a filesystem",
            arguments: ["shared", "exclusive", "none"],
            calls)
        func reservedBlocks(cache: String, call: String) throws {
            let user = try #require(Machine.plainUser)
            let fixture = try MountFixture()
            let volume = try volume(fixture, "volume")
            try fixture.grant(volume)
            let mountpoint = try fixture.mount(options: "allow_other,cache=\(cache)")
            // A worker that has just acted for root is as good as any other.
            try Command.run(["touch", mountpoint + "/volume/place/of-root"]).orThrow()
            _ = try fill(volume + "/place", call, as: user)
            try Command.run(["sync", "-f", volume]).orThrow()
            let natively = try free(volume)
            #expect(natively.free > natively.all * 0.35, "the reserve is there at all: \(natively)")
            try Command.shell("rm -r \"$1\"/*; sync -f \"$1\"", volume + "/place").orThrow()
            // Under write-back a write is refused when it is written back.
            _ = try fill(mountpoint + "/volume/place", call, as: user)
            try Command.run(["sync", "-f", volume]).orThrow()
            let through = try free(volume)
            #expect(through.free > natively.free - natively.all * 0.02, "\(through) free, natively \(natively)")
        }

        @Test("Stores into a mapping of a hole take no reserved blocks", arguments: ["shared", "exclusive", "none"])
        func mapped(cache: String) throws {
            let user = try #require(Machine.plainUser)
            let fixture = try MountFixture()
            let volume = try volume(fixture, "volume")
            try fixture.grant(volume)
            let mountpoint = try fixture.mount(options: "allow_other,cache=\(cache)")
            let script = """
                import mmap, os, sys
                file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666)
                os.ftruncate(file, 30 << 20)
                memory = mmap.mmap(file, 30 << 20)
                for place in range(0, 30 << 20, 4096):
                    memory[place] = 1
                    if place % (1 << 20) == 0:
                        try: memory.flush()
                        except OSError: break
                try: memory.flush()
                except OSError: pass
                """
            _ = try python(script, mountpoint + "/volume/place/file", as: user)
            try Command.run(["sync", "-f", volume]).orThrow()
            let left = try free(volume)
            #expect(left.free > left.all * 0.35, "\(left)")
        }

        /// The caller that may use the reserve.
        enum Who: String, CaseIterable, Sendable { case root, rootWithout, userWith, member, owner }

        @Test(
            "The reserve is available to root and its designated user and group only",
            arguments: Who.allCases, ["shared", "exclusive"])
        func reserve(who: Who, cache: String) throws {
            // Whose reserve it is by his group shows wherever these tests run.
            if who != .member, who != .owner, !Self.mayExceed { return }
            let user = try #require(Machine.plainUser)
            let fixture = try MountFixture()
            // Mounted so that the reserve belongs to no user of the test, and root has only its capability. By option: Linux 6.18 takes
            // the filesystem's user number for the group's as well.
            let volume = try volume(
                fixture, "volume", reserve: who == .owner ? user.uid : 45678, who == .member ? 34567 : 45678)
            try fixture.grant(volume)
            let mountpoint = try fixture.mount(options: "allow_other,cache=\(cache)")
            let uid = ["--reuid=\(user.uid)", "--regid=\(user.gid)"]
            let before: [String] =
                switch who {
                case .root: []
                case .rootWithout: ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"]
                case .userWith: ["setpriv"] + uid + ["--clear-groups", "--inh-caps=+sys_resource", "--ambient-caps=+sys_resource"]
                case .owner: ["setpriv"] + uid + ["--clear-groups"]
                case .member: ["setpriv"] + uid + ["--groups=34567"]
                }
            var left: [Double] = []
            for place in [volume, mountpoint + "/volume"] {
                _ = try fill(place + "/place", "write", before: before, as: .current)
                try Command.run(["sync", "-f", volume]).orThrow()
                left.append(try free(volume).free)
                try Command.shell("rm -r \"$1\"/place/*; sync -f \"$1\"", volume).orThrow()
            }
            let all = try free(volume).all
            #expect(who == .rootWithout ? left[0] > all * 0.35 : left[0] < all * 0.1, "natively \(left[0]) of \(all)")
            #expect(abs(left[0] - left[1]) < all * 0.03, "\(left[1]) free, natively \(left[0])")
        }

        @Test(
            "A quota binds a user through the mount and exempts root",
            .enabled(if: Command.exists("mkfs.btrfs") && Command.exists("btrfs"), "needs btrfs"))
        func quota() throws {
            let user = try #require(Machine.plainUser)
            let fixture = try MountFixture()
            let (image, volume) = (fixture.base + "/btrfs.image", try fixture.source("volume"))
            try Command.shell("truncate -s 200M \"$1\"; mkfs.btrfs -q \"$1\"", image).orThrow()
            try fixture.mountOther(["mount", "-o", "loop", image], at: volume)
            let setup = """
                btrfs quota enable "$1"; btrfs subvolume create "$1/limited" >/dev/null; chmod 777 "$1/limited"
                btrfs qgroup limit 16M "$1/limited"
                """
            // A kernel without quotas of this kind.
            guard try Command.shell(setup, volume).status == 0 else { return }
            // CAP_SYS_RESOURCE then permits more (fs/btrfs/qgroup.c, BTRFS_FS_QUOTA_OVERRIDE).
            let override = "echo 1 > /sys/fs/btrfs/$(findmnt -n -o UUID \"$1\")/quota_override"
            if Self.mayExceed { try Command.shell(override, volume).orThrow() }
            try fixture.grant(volume + "/limited")
            let mountpoint = try fixture.mount(options: "allow_other")
            let script = """
                import errno, os, sys
                file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    for place in range(64): os.pwrite(file, os.urandom(1 << 20), place << 20)
                    os.fsync(file)
                    print('written')
                except OSError as error: print(errno.errorcode[error.errno])
                os.close(file)
                os.unlink(sys.argv[1])
                """
            for (identity, expected) in [(user, "EDQUOT"), (Identity.current, Self.mayExceed ? "written" : "EDQUOT")] {
                for place in [volume, mountpoint] {
                    let output = try python(script, place + "/limited/file", as: identity)
                    #expect(output == expected, "\(identity) in \(place)")
                    try Command.run(["btrfs", "filesystem", "sync", volume]).orThrow()
                }
            }
        }
    }
}
