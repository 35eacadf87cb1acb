import Foundation
import TestSupport
import Testing

extension MountTests {
    /// What an administrator asks about any filesystem, asked about a view.
    @Suite(
        "System tools",
        .enabled(
            if: Machine.offers("lsof") && Machine.offers("fuser") && Machine.offers("findmnt"), "lsof, fuser or findmnt is not installed"))
    struct SystemTools {
        /// A view with two grants, and a process that has a file of the first one open, another mapped and works in a directory of it.
        private func situation() throws -> (MountFixture, mountpoint: String, holder: Child) {
            let fixture = try MountFixture()
            let documents = try fixture.source("documents")
            mkdir(documents + "/work", 0o755)
            for name in ["letter", "work/draft"] { try Data("text".utf8).write(to: URL(fileURLWithPath: "\(documents)/\(name)")) }
            try fixture.grant(documents, view: "ci")
            try fixture.grant(try fixture.source("other"), view: "ci")
            let mountpoint = try fixture.mount("ci")
            let holder = try Child(["bash", "-c", "cd \"$1/work\"; exec 3<../letter; echo held; read", "bash", mountpoint + "/documents"])
            try holder.expect("held")
            return (fixture, mountpoint, holder)
        }

        /// lsof and fuser ask every filesystem and wait up to 15 s for each that does not answer, as some of other tests' at times.
        private static let patience = 150.0

        /// The output of the last command. lsof and fuser exit with 1 if they find nothing.
        private func lines(_ words: String...) throws -> [String] { try Command.run(words, within: Self.patience).lines }

        @Test("`lsof` names open files of a view by their names in the mount")
        func openFiles() throws {
            let (fixture, mountpoint, holder) = try situation()
            let fields = try lines("lsof", "-w", "-F", "pfn", "--", mountpoint)
            let own = fields.drop { $0 != "p\(holder.pid)" }.prefix { $0 == "p\(holder.pid)" || !$0.hasPrefix("p") }
            #expect(own.contains("n\(mountpoint)/documents/work") && own.contains("n\(mountpoint)/documents/letter"), "\(fields)")
            // By the file, for any caller. Another file has no user.
            #expect(try lines("lsof", "-w", "-t", "--", mountpoint + "/documents/letter") == ["\(holder.pid)"])
            #expect(try lines("lsof", "-w", "-t", "--", mountpoint + "/documents/work/draft").isEmpty)
            let table = try lines("lsof", "-w", "-a", "-p", "\(holder.pid)", "-d", "3")
            #expect(table.count == 2 && table[1].contains(" REG ") && table[1].hasSuffix("/documents/letter"), "\(table)")
            // A revoked grant keeps neither of them waiting.
            try fixture.grantfs("revoke", "documents", "--view", "ci").orThrow()
            #expect(try Command.run(["lsof", "-w", "-p", "\(holder.pid)"], within: Self.patience).text.contains("bash"))
        }

        @Test("`fuser -m` names users of the view but not of the granted directory")
        func users() throws {
            let (fixture, mountpoint, holder) = try situation()
            let beside = try Child(["bash", "-c", "cd \"$1\"; echo there; read", "bash", fixture.base + "/source/documents"])
            try beside.expect("there")
            let output = try Command.run(["fuser", "-v", "-m", mountpoint], within: Self.patience)
            let rows = (output.text + output.errors).split(separator: "\n").map(String.init)
            let found = output.text.split(whereSeparator: \.isWhitespace)
            #expect(found.contains("\(holder.pid)") && !found.contains("\(beside.pid)"), "\(output)")
            #expect(
                rows.contains { $0.contains(".c") && $0.contains("bash") } || output.errors.contains("c"), "a working directory: \(output)")
        }

        @Test("`findmnt` shows the type, the view and the options")
        func mounts() throws {
            let (fixture, mountpoint, _) = try situation()
            let shown = try lines("findmnt", "-n", "-r", "-o", "TARGET,SOURCE,FSTYPE", "-T", mountpoint + "/documents/work/draft")
            #expect(shown == ["\(mountpoint) ci fuse.grantfs"])
            let options = try #require(try lines("findmnt", "-n", "-o", "OPTIONS", mountpoint).first)
            for word in ["rw", "nosuid", "nodev"] { #expect(options.split(separator: ",").contains(Substring(word)), "\(options)") }
            #expect(try lines("findmnt", "-n", "-r", "-o", "TARGET", "-t", "fuse.grantfs").contains(mountpoint))
            #expect(!(try lines("findmnt", "-n", "-r", "-o", "TARGET")).contains(fixture.base + "/source"))
        }

        @Test("`df` shows the space of the granted filesystem below a grant")
        func space() throws {
            let (fixture, mountpoint, _) = try situation()
            func row(_ words: String...) throws -> [String] {
                let last = try #require(try Command.run(["df"] + words, within: Self.patience).orThrow().lines.last)
                return last.split(separator: " ").map(String.init)
            }
            let root = try row("-P", mountpoint)
            #expect(root.first == "ci" && root.last == mountpoint && Int(root[1]).map { $0 > 0 } == true, "\(root)")
            for words in ["-P", "-Pi"] {
                // Where there are as many inodes as there is space for, others change that meanwhile.
                try fixture.wait(until: "df \(words) shows the same") {
                    let (through, native) = (try row(words, mountpoint + "/documents"), try row(words, fixture.base + "/source/documents"))
                    return through[1] == native[1] && through.last == mountpoint
                }
            }
        }
    }
}
