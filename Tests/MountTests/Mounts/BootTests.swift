import Foundation
import TestSupport
import Testing

extension MountTests {
    /// mount(8) finds its helpers in /sbin alone. Each script has a mount namespace of its own with
    /// the helper under test.
    @Suite("System mount commands", .enabled(if: Identity.isRoot && Machine.offers("unshare"), "needs root")) struct Boot {
        private let fixture: MountFixture
        private let source: String

        init() throws {
            fixture = try MountFixture()
            source = try fixture.source("docs")
            try Data("inside\n".utf8).write(to: URL(fileURLWithPath: source + "/file"))
            try fixture.grant(source, view: "ci")
            for directory in ["mnt", "other"] { try fixture.directory(directory) }
            let fstab = """
                ci \(fixture.base)/mnt grantfs store=\(fixture.store),nofail,_netdev,x-systemd.automount,x-systemd.device-timeout=3,allow_other 0 0
                ci \(fixture.base)/other fuse.grantfs store=\(fixture.store),noauto,user,ro 0 0

                """
            try Data(fstab.utf8).write(to: URL(fileURLWithPath: fixture.base + "/fstab"))
        }

        /// What the script prints. `$B` is the fixture's directory, `$S` its store.
        private func run(_ script: String) throws -> Output {
            return try Command.run(
                [
                    "unshare", "-m", "bash", "-c",
                    """
                    B=$1 S=$1/store; export GRANTFS_STORE=$S
                    mkdir -p "$B/sbin" && sed "s|^PATH=.*|&:$(dirname "$2")|" "$3" > "$B/sbin/mount.grantfs" && chmod 755 "$B/sbin/mount.grantfs" || exit 99
                    ln -sf mount.grantfs "$B/sbin/mount.fuse.grantfs"
                    mount -t overlay -o lowerdir="$B/sbin:$(readlink -f /sbin)" overlay "$(readlink -f /sbin)" || exit 99
                    grantfs() { "\(Programs.grantfs)" "$@"; }
                    # Nothing of the mount at $1 is left: no daemon, no socket, no record.
                    gone() {
                        for i in $(seq 1000); do
                            pgrep -f "mount.* $1\\$" >/dev/null || [ -n "$(ls "$S/run")" ] || break; sleep 0.05
                        done
                        pgrep -f -- "-- ci $1\\$"; ls "$S/run"; grantfs status; echo "gone"
                    }
                    \(script)
                    """, "bash", fixture.base, Programs.grantfs, Programs.mountHelper,
                ], within: 300)
        }

        @Test("`mount -a` mounts an fstab line once, and skips `noauto`")
        func fstab() throws {
            let output = try run(
                """
                mount -a -T "$B/fstab"; echo $?; mount -a -T "$B/fstab"; echo $?
                findmnt -n -o SOURCE,FSTYPE "$B/mnt" | tr -s ' '; findmnt -n "$B/other" || echo none
                mount -T "$B/fstab" "$B/other"; findmnt -n -o FSTYPE "$B/other"; touch "$B/other/docs/x" 2>&1 | grep -o Read-only
                cat "$B/mnt/docs/file"
                """)
            #expect(output.lines == ["0", "0", "ci fuse.grantfs", "none", "fuse.grantfs", "Read-only", "inside"], "\(output)")
        }

        @Test("A read-only remount gives EROFS, and a read-write one ends it")
        func remounting() throws {
            let output = try run(
                """
                mount -t grantfs ci "$B/mnt" -o store="$S"
                mount -o remount,ro "$B/mnt"; echo $?; touch "$B/mnt/docs/a" 2>&1 | grep -o Read-only; findmnt -n -o OPTIONS "$B/mnt" | cut -d, -f1
                mount -o remount,rw "$B/mnt"; echo $?; touch "$B/mnt/docs/a" && echo written; findmnt -n -o OPTIONS "$B/mnt" | cut -d, -f1
                exec 8>>"$B/mnt/docs/open"; mount -o remount,ro "$B/mnt" 2>/dev/null || echo busy; echo x >&8 && echo "still its writer"
                """)
            #expect(
                output.lines == ["0", "Read-only", "ro", "0", "written", "rw", "busy", "still its writer"],
                "as everywhere, a filesystem that somebody has open for writing does not become read-only: \(output)")
        }

        @Test("`umount` without options or with `-l` or `-f` leaves no daemon, socket or record", arguments: ["", "-l", "-f"])
        func unmounting(option: String) throws {
            let output = try run(
                """
                mount -t grantfs ci "$B/mnt" -o store="$S"; ls "$B/mnt"
                umount \(option) "$B/mnt"; echo $?; gone "$B/mnt"
                """)
            #expect(output.lines == ["docs", "0", "gone"], "\(output)")
        }

        @Test("`umount` of a busy mount is refused, and `umount -l` succeeds")
        func inUse() throws {
            let output = try run(
                """
                mount -t grantfs ci "$B/mnt" -o store="$S"; exec 9< "$B/mnt/docs/file"
                umount "$B/mnt" 2>/dev/null; echo $?; fuser -m "$B/mnt" 2>/dev/null | grep -ow $$ | sort -u | sed s/$$/found/
                umount -l "$B/mnt"; echo $?; cat <&9; exec 9<&-; gone "$B/mnt"
                """)
            #expect(output.lines == ["32", "found", "0", "inside", "gone"], "\(output)")
        }

        @Test("The next mount removes the dead mount of a killed daemon")
        func afterACrash() throws {
            let output = try run(
                """
                mount -T "$B/fstab" "$B/mnt"; pid=$(grantfs status --json | grep -o '"pid":[0-9]*' | head -n 1 | cut -d : -f 2); kill -9 $pid
                while ls /proc/$pid/task 2>/dev/null | xargs -I{} cat /proc/$pid/task/{}/stat 2>/dev/null | grep -qv ') [ZX] '; do sleep 0.02; done
                ls "$B/mnt" 2>&1 | grep -c inside; mount -T "$B/fstab" "$B/mnt"; echo $?; cat "$B/mnt/docs/file"; ls "$S/run" | wc -l
                umount "$B/mnt"; gone "$B/mnt"
                """)
            #expect(output.lines == ["0", "0", "inside", "1", "gone"], "\(output)")
        }

        @Test("`df` reports a nonzero size at the root and the exact one below a grant")
        func space() throws {
            let output = try run(
                """
                mount -t grantfs ci "$B/mnt" -o store="$S"
                df -P "$B/mnt" | awk 'NR == 2 { print $1, ($2 > 0), $6 }'
                [ "$(df -P "$B/mnt/docs" | awk 'NR == 2 { print $2 }')" = "$(df -P "$B/source/docs" | awk 'NR == 2 { print $2 }')" ] && echo same
                """)
            #expect(output.lines == ["ci 1 \(fixture.base)/mnt", "same"], "\(output)")
        }
    }
}
