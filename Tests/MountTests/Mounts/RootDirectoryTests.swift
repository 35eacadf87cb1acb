import Foundation
import TestSupport
import Testing

extension MountTests {
    /// /proc/self/mountinfo omits the mount of such a root, so another interface has to identify
    /// it.
    @Suite(
        "A root directory that is not a mountpoint",
        .enabled(if: Identity.isRoot && Machine.offers("unshare") && Machine.offers("chroot"), "needs root")) struct ARootThatIsNoMountpoint
    {
        private let fixture: MountFixture

        init() throws { fixture = try MountFixture() }

        /// What `script` prints in a tree of its own below a plain directory, with the program in /program. `namespaces`: words for unshare(1).
        private func run(_ script: String, _ namespaces: [String]) throws -> Output {
            let tree = """
                cd "$1"
                mkdir -p root/proc root/dev root/tmp root/program root/srv/docs root/srv/view
                echo inside >root/srv/docs/file
                for part in /usr /etc /bin /sbin /lib /lib64; do
                    if [ -L "$part" ]; then cp -P "$part" root/; continue; fi
                    if [ -d "$part" ]; then mkdir "root$part"; mount --rbind "$part" "root$part"; fi
                done
                mount -t proc proc root/proc
                mount --rbind /dev root/dev
                mount --bind "$(dirname "$2")" root/program
                exec chroot root env -i PATH=/program:/usr/sbin:/usr/bin:/sbin:/bin GRANTFS_STORE=/store sh -uc "$3"
                """
            return try Command.run(
                ["unshare", "--mount", "--propagation", "private"] + namespaces
                    + ["sh", "-euc", tree, "sh", fixture.base, Programs.grantfs, script], within: 120)
        }

        private static let kernelTells: Bool = {
            let release = Processes.kernelText("/proc/sys/kernel/osrelease").split { !$0.isNumber }.compactMap { Int($0) }
            return release.count > 1 && (release[0], release[1]) >= (6, 8)
        }()

        /// Grants, succeeds with each operation, finds the directory after a rename, revokes open
        /// files.
        private let use = """
            awk '$5 == "/" { print "the root is a mountpoint" }' /proc/self/mountinfo
            grantfs grant /srv/docs >/dev/null && grantfs mount default /srv/view && cat /srv/view/docs/file
            grantfs unmount /srv/view
            mv /srv/docs /srv/moved
            grantfs mount default /srv/view && exec 3</srv/view/docs/file && cat <&3
            grantfs repair docs | awk '$1 == "path" { print $2 }'
            exec 3</srv/view/docs/file
            grantfs revoke docs >/dev/null
            cat <&3 2>/dev/null || echo refused
            exec 3<&-
            grantfs unmount /srv/view
            """

        @Test("A root directory below that of the first process serves grants")
        func seenByTheFirstProcess() throws {
            let output = try run(use, [])
            #expect(output.lines == ["inside", "inside", "/srv/moved", "refused"], "\(output)")
        }

        @Test(
            "A root directory of every process serves grants",
            .enabled(if: kernelTells, "only statmount(2), of Linux 6.8, says what is mounted there"))
        func belowItAll() throws {
            let output = try run(use, ["--pid", "--fork", "--kill-child"])
            #expect(output.lines == ["inside", "inside", "/srv/moved", "refused"], "\(output)")
        }
    }
}
