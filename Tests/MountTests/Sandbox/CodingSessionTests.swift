import Foundation
import TestSupport
import Testing

extension MountTests {
    /// What a coding agent does in `grantfs run`, from the clone to the commit, and what the person does who has let it.
    @Suite(
        "A coding session in a sandbox",
        .enabled(
            if: Machine.hasSandboxes && Command.exists("git") && Command.exists("gcc") && Command.exists("make"),
            Comment(rawValue: Machine.needs("bubblewrap, git, gcc and make"))))
    struct CodingSession {
        private let fixture: MountFixture
        private let home: String
        private let work: String
        private let origin: String

        init() throws {
            fixture = try MountFixture()
            home = try fixture.directory("home")
            work = try fixture.source("work")
            origin = try fixture.directory("outside/origin")
            try """
            [user]
            name = Ann
            email = ann@example.org
            [credential]
            helper = store
            """.write(toFile: home + "/.gitconfig", atomically: false, encoding: .utf8)
            try "https://ann:secret@example.org\n".write(toFile: home + "/.git-credentials", atomically: false, encoding: .utf8)
            try Command.shell(
                """
                cd "$1"; git init -q .; mkdir src test
                printf 'int twice(int number) { return number + 2; }\\n' > src/twice.c
                printf 'int twice(int); int main(void) { return twice(3) == 6 ? 0 : 1; }\\n' > test/twice.c
                printf 'test: build/test\\n\\tbuild/test\\nbuild/test: src/twice.c test/twice.c\\n\\tmkdir -p build\\n\\t$(CC) -o $@ $^\\n' > Makefile
                echo build > .gitignore
                git add .; git -c user.name=Ben -c user.email=ben@example.org commit -qm 'What there was'
                echo notes > "$2/notes"
                """, origin, work
            ).orThrow()
        }

        private func grantfs(_ words: String...) throws -> Output {
            let environment = fixture.environment.merging(["HOME": home, "XDG_CONFIG_HOME": ""]) { $1 }
            return try Command.run([Programs.grantfs] + words, environment: environment, within: 120)
        }

        private struct Snapshot: Decodable { let id: String }

        @Test("A coding session is reviewed, kept as a patch and undone")
        func session() throws {
            let script = """
                cd '\(work)'
                git clone -q '\(origin)' project; cd project
                make -s test && echo 'it passed before' || echo 'it fails as it was'
                sed -i 's/number + 2/number * 2/' src/twice.c
                make -s test && echo 'it passes'
                git commit -qam 'Twice is twice'
                git log -1 --format='%an <%ae>'
                echo 'done' >> ../notes
                cat ~/.git-credentials 2>/dev/null || echo 'no credentials'
                touch '\(origin)/new' 2>/dev/null || echo 'the origin is to read'
                """
            let output = try grantfs(
                "run", "--tool", "git", "--grant", work, "--ro-bind", origin, "--snapshot", "--", "sh", "-c", script
            ).orThrow()
            let said = ["it fails as it was", "it passes", "Ann <ann@example.org>", "no credentials", "the origin is to read"]
            #expect(output.lines.filter(said.contains) == said, "\(output)")

            // The review.
            let snapshots: [Snapshot] = try grantfs("diff", "--list", "--json").orThrow().decoded()
            let id = try #require(snapshots.first?.id)
            let patch = try grantfs("diff", "--patch", id).orThrow().text
            #expect(patch.contains("number * 2") && patch.contains("+done") && patch.contains("notes"), "\(patch.prefix(2000))")
            #expect(try Command.run(["git", "-C", work + "/project", "fsck", "--full"]).status == 0)
            // A look without writes: undo keeps files that change after the session.
            #expect(try Command.run(["git", "--no-optional-locks", "-C", work + "/project", "status", "--porcelain"]).text == "")

            // The undo.
            try grantfs("undo", id).orThrow()
            #expect(try FileManager.default.contentsOfDirectory(atPath: work) == ["notes"])
            #expect(try String(contentsOfFile: work + "/notes", encoding: .utf8) == "notes\n")
            #expect(fixture.mountpoints.isEmpty)
        }
    }
}
