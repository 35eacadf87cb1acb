import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Programs without support for grantfs give byte for byte their native output.
    @Suite struct UnmodifiedTools {
        private let fixture: MountFixture
        /// The same place through the mount and beside it.
        private let through: String
        private let native: String

        init() throws {
            fixture = try MountFixture()
            let source = try fixture.source("work")
            try fixture.grant(source)
            through = try fixture.mount() + "/work"
            native = try fixture.directory("native")
        }

        /// Everything that can be seen of a tree: names, types, modes, owners, links, sizes, times of files, contents.
        private func manifest(_ directory: String) throws -> String {
            try Command.shell(
                """
                cd "$1"
                { find . -mindepth 1 -name .git -prune -o -type d -printf 'd %P %m %U %G\\n' -o \
                    -printf '%y %P %m %U %G %n %s %l\\n' | LC_ALL=C sort
                  find . -name .git -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum; }
                """, directory
            ).orThrow().text
        }

        /// Runs a script in both places, with the same standard output and the same tree afterwards.
        private func expectSame(_ script: String, within seconds: Double = 60) throws {
            let there = try Command.shell("cd \"$1\"; " + script, through, within: seconds).orThrow()
            let here = try Command.shell("cd \"$1\"; " + script, native, within: seconds).orThrow()
            #expect(there.text == here.text)
            let (left, right) = (try manifest(through), try manifest(native))
            #expect(left == right)
            // The mount shows the contents of the directory behind it.
            #expect(try manifest(fixture.base + "/source/work") == left)
        }

        private static let tree = """
            mkdir -p tree/d/e tree/empty; printf 'hello\\n' > tree/a; head -c 300000 /dev/zero | tr '\\0' 'q' > tree/d/big
            ln tree/a tree/d/hard; ln -s ../a tree/d/soft; ln -s /nowhere tree/dangling; mkfifo tree/fifo
            chmod 4755 tree/a; chmod 700 tree/d/e; truncate -s 1M tree/sparse; printf x >> tree/sparse
            printf y > $'tree/new\\nline'; printf z > $'tree/\\xff\\xfe'; printf w > 'tree/ -rf=,*'
            touch -d '2001-02-03 04:05:06.789' tree/a tree/d/big; touch -d '1969-12-31' tree/d
            """

        @Test("`cp -a` gives its native output and tree in a mount")
        func cp() throws {
            try expectSame(
                Self.tree
                    + "; cp -a tree copy; cp -a --reflink=never copy/. again; find . -type f -printf '%P %T@\\n' | grep -v tree | grep -c 981173106.7890000000"
            )
        }

        @Test("`tar` gives its native archive and tree in a mount")
        func tar() throws {
            try expectSame(
                Self.tree
                    + "; tar --sort=name --numeric-owner --mtime=@0 -cf a.tar tree; sha256sum a.tar; mkdir out; tar -xpf a.tar -C out; tar -C out -df a.tar"
            )
        }

        @Test(
            "`rsync` gives its native output and tree in a mount",
            .enabled(if: Command.exists("rsync"), Comment(rawValue: Machine.needs("rsync"))))
        func rsync() throws {
            try expectSame(
                Self.tree
                    + "; rsync -aH tree/ copy/; printf more >> tree/d/big; rm tree/empty -r; rsync -aHc --delete --inplace tree/ copy/")
        }

        @Test(
            "`git` gives its native objects and tree in a mount",
            .enabled(if: Command.exists("git"), Comment(rawValue: Machine.needs("git"))))
        func git() throws {
            let prefix =
                "export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='1000000000 +0000' GIT_COMMITTER_DATE='1000000000 +0000';"
                + "g() { git -c user.name=T -c user.email=t@t -c init.defaultBranch=main -c safe.directory='*' \"$@\"; };"
            try expectSame(
                prefix + """
                    g init -q one; cd one; for i in $(seq 60); do mkdir -p d$((i % 7)); seq $i $((i * 50)) > d$((i % 7))/f$i; done
                    g add -A; g commit -qm first; g mv d1 moved; g rm -q d2/f2; echo more >> d3/f3; g commit -qam second
                    g checkout -q -b side; echo side > side; g add side; g commit -qm side; g checkout -q main; g merge -q --no-ff -m merge side
                    cd ..; g clone -q one two; cd two; g gc -q --prune=now; g fsck --full --strict; g status --porcelain
                    g rev-parse HEAD; g ls-files -s; g rev-list --objects --all | LC_ALL=C sort
                    """)
        }

        @Test(
            "A sqlite3 database is byte-identical to a native one",
            .enabled(if: Command.exists("sqlite3"), Comment(rawValue: Machine.needs("sqlite3"))), arguments: ["delete", "wal"])
        func sqlite(journal: String) throws {
            try expectSame(
                """
                sqlite3 db "pragma journal_mode=\(journal); create table t(a integer primary key, b text);
                  with recursive c(i) as (select 1 union all select i+1 from c where i<5000) insert into t select i, 'row '||i from c;
                  create index x on t(b); delete from t where a%3=0; update t set b=b||'!' where a%5=0;"
                sqlite3 db "begin; insert into t(b) values('gone'); rollback; vacuum; pragma integrity_check; select count(*), sum(a) from t;"
                sqlite3 db .dump | sha256sum; rm -f db-wal db-shm
                """)
        }

        @Test("An editor's atomic save leaves the new text and the mode")
        func atomicSave() throws {
            try expectSame(
                """
                printf 'one\\ntwo\\n' > file; chmod 640 file
                for i in 1 2 3 4 5; do cp -p file .file.swp; sed -n p file > 4913; echo "line $i" >> 4913; sync 4913
                  chmod --reference=file 4913; mv file file~; mv 4913 file; rm file~ .file.swp; cat file; done
                sed -i s/two/TWO/ file; cat file
                """)
        }

        @Test(
            "`vim` gives its native output and tree in a mount",
            .enabled(if: Command.exists("vim"), Comment(rawValue: Machine.needs("vim"))))
        func vim() throws {
            try expectSame("printf 'one\\ntwo\\n' > file; vim -Es -u NONE -c '%s/two/three/' -c 'wq' file; cat file; ls -A")
        }

        @Test(
            "`make` and `gcc` give their native output and tree in a mount",
            .enabled(if: Command.exists("gcc") && Command.exists("make"), "needs gcc and make"))
        func compiler() throws {
            try expectSame(
                """
                for i in $(seq 8); do printf '#include <stdio.h>\\nint f%d(void) { return printf("%d\\\\n"); }\\n' $i $i > f$i.c; done
                { for i in $(seq 8); do echo "int f$i(void);"; done; echo 'int main(void) {'; for i in $(seq 8); do echo "f$i();"; done; echo 'return 0; }'; } > main.c
                printf 'prog: $(patsubst %%.c,%%.o,$(wildcard *.c))\\n\\tgcc -o $@ $(sort $^)\\n' > Makefile
                make -s -j2; ./prog; make -s -q
                """)
        }

        @Test("Files removed, replaced or linked while open behave natively")
        func removedAndLinked() throws {
            try expectSame(
                """
                echo one > a; exec 8<> a; echo two > b; mv b a; cat <&8; cat a; stat -Lc '%h %s' /dev/fd/8; echo more >&8
                stat -Lc '%h %s' /dev/fd/8; cat /dev/fd/8; rm a; ls
                echo f > f; ln f g; echo more >> g; stat -c '%h %s' f g; exec 9< f; rm f; stat -c '%h %s' g; stat -Lc '%h %s' /dev/fd/9
                cat <&9; truncate -s 3 g; stat -Lc '%h %s' /dev/fd/9; mv g h; stat -Lc '%h %s' /dev/fd/9
                mkdir d; (cd d; rmdir ../d; ls -A; touch x 2> /dev/null || echo gone; stat -c '%h %F' .)
                name=$(printf 'n%.0s' $(seq 255)); touch "$name"; rm "$name"; touch "${name}n" 2>&1 | grep -c 'too long'
                long=.; for i in $(seq 15); do long=$long/$(printf 'd%.0s' $(seq 200)); done; mkdir -p $long; echo deep > $long/f; cat $long/f
                rm -r ddd*; exec 8>&- 9<&-; ls
                """)
        }

        @Test("A file that is renamed repeatedly is never absent")
        func neverAbsent() throws {
            let output = try Command.shell(
                """
                cd "$1"; echo 0 > f; (for i in $(seq 400); do echo $i > t; mv t f; done) & writer=$!
                while kill -0 $writer 2> /dev/null; do cat f > /dev/null || echo absent; done; wait; cat f
                """, through, within: 240)
            #expect(output.text == "400\n" && output.errors.isEmpty, "\(output)")
        }

        @Test(
            "ACLs are set, shown, inherited and obeyed natively",
            .enabled(
                if: Identity.isRoot && Machine.plainUser != nil && Command.exists("setfacl"),
                "needs root, a plain user to act as, and setfacl")
        )
        func accessControlLists() throws {
            let user = Machine.plainUser!
            let fixture = try MountFixture()
            let source = try fixture.source("a")
            try fixture.grant(source)
            let mount = try fixture.mount(options: "allow_other") + "/a"
            let script = """
                cd "$1"; chmod 755 .; echo x > denied; echo y > allowed; chmod 600 allowed; setfacl -m "u:$2:---" denied; setfacl -m "u:$2:r--" allowed
                mkdir d; setfacl -d -m "u:$2:rwx,g::---,o::---" d; touch d/f; mkdir d/e; getfacl -n denied allowed d d/f d/e
                setpriv --reuid="$2" --clear-groups cat denied allowed 2>&1 || true
                """
            let there = try Command.shell(script, mount, "\(user.uid)").orThrow()
            let here = try Command.shell(script, try fixture.directory("native"), "\(user.uid)").orThrow()
            #expect(there.text == here.text)
        }

        @Test("Appends by several writers in the mount and on the host lose no line")
        func appends() throws {
            let source = fixture.base + "/source/work"
            try Command.shell(
                "for w in 1 2; do for p in \"$1\" \"$2\"; do (for i in $(seq 300); do echo \"writer $w $p line $i end\" >> \"$p/log\"; done) & done; done; wait",
                through, source
            ).orThrow()
            let whole = try Command.run(["grep", "-c", "^writer [12] .* line [0-9]* end$", source + "/log"]).trimmed
            #expect(whole == "1200")
            #expect(try Command.run(["wc", "-l", source + "/log"]).trimmed.hasPrefix("1200 "))
            try fixture.wait(until: "the mount shows all lines", within: 15) {
                try Command.run(["wc", "-l", through + "/log"]).trimmed.hasPrefix("1200 ")
            }
        }
    }
}
