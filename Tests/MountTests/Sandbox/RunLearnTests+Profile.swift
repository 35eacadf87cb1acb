import Foundation
import Glibc
import TestSupport
import Testing

// The profiles that are proposed.
extension MountTests.RunLearn {
    @Test("A hostile name adds no line to a profile or to the output of `why`")
    func hostileNames() throws {
        let odd = "src/lib/a\"\nnetwork = true\n#"
        try write("x", odd)
        try write("x", "src/lib/quote\"back\\slash")
        let script = """
            import os
            home = os.environb[b"HOME"]
            for name in (b"src/lib/a\\"\\nnetwork = true\\n#", b"src/lib/quote\\"back\\\\slash"): os.path.exists(home + b"/" + name)
            for name in (b"x\\n[[grant]]\\npath = \\"/\\"", b"\\xff\\x1b[31m\\r", "\\u2028\\u202e".encode()):
                try: os.mkdir(home + b"/.cache/none/" + name)
                except OSError: pass
            """
        try python(script).orThrow()
        let report = try report()
        #expect(report.names.contains { $0.path == home + "/" + odd } && report.names.contains { $0.pathHex != nil })
        let text = try profile()
        for line in text.split(separator: "\n") {
            let isOwn =
                line == "#"
                || ["# ", "[[grant]]  # ", "path = \"~/", "access = \"read-only\"", "optional = true", "links = false"].contains {
                    line.hasPrefix($0)
                }
            #expect(isOwn, "\(line)")
        }
        #expect(
            text.unicodeScalars.allSatisfy {
                $0 == "\n" || $0.properties.generalCategory != .control && $0 != "\u{2028}" && $0 != "\u{202e}"
            })
        #expect(text.contains(#"path = "~/src/lib/quote\"back\\slash""#) && !text.contains("path = \"~/src/lib/a"), "\(text)")
        let why = try grantfs(["why"]).orThrow().text
        #expect(!why.contains("\nnetwork") && !why.contains("\u{1b}"), "\(why)")
        try write(allowed(text), ".config/grantfs/profiles/odd")
        #expect(try run("cat ~/src/lib/quote*", ["--learn", "--tool", "odd"]).orThrow().lines == ["x"])
    }

    @Test("A run with its profile gets what was missing, and wants nothing more")
    func roundTrip() throws {
        let script =
            "cat ~/.config/tool/conf ~/.config/tool/more ~/notes ~/src/lib/a; echo new > ~/.cache/tool/new; echo changed > ~/src/read/file"
        let read = try fixture.directory("home/src/read")
        try run(script + "; true", ["--learn", "--grant", read + ":ro"]).orThrow()
        #expect(try !report().refused.isEmpty)
        let text = allowed(try profile())
        let places = text.split(separator: "\n").filter { $0.hasPrefix("path = ") || $0.hasPrefix("access = ") }
        #expect(
            places == [
                #"path = "~/.config/tool""#, #"access = "read-only""#, #"path = "~/notes""#, #"access = "read-only""#,
                #"path = "~/src/lib/a""#, #"access = "read-only""#, #"path = "~/.cache/tool""#, #"access = "read-write""#,
                #"path = "~/src/read""#, #"access = "read-write""#,
            ], "\(text)")
        try write(text, ".config/grantfs/profiles/tool")
        let output = try run(script, ["--learn", "--tool", "tool"]).orThrow()
        #expect(output.lines == ["x", "x", "x", "x"] && !output.errors.contains("wanted"), "\(output)")
        #expect(try report().isEmpty)
        #expect(try String(contentsOfFile: home + "/.cache/tool/new", encoding: .utf8) == "new\n")
        #expect(try String(contentsOfFile: read + "/file", encoding: .utf8) == "changed\n")
        let nothing = try grantfs(["profile"])
        #expect(nothing.status == 1 && nothing.text.split(separator: "\n").allSatisfy { $0.hasPrefix("#") }, "\(nothing)")
    }

    @Test("A profile proposes no keys, browsers, startup files, shared directories or links")
    func dangerous() throws {
        for path in [
            ".gnupg/secring", ".mozilla/firefox/x", ".local/share/keyrings/login", ".config/gh/hosts.yml", ".vimx/.vim/plugin",
            ".config/grantfs/profiles/own", ".config/other/credentials.json", ".config/other/plain", "src/proj/Jenkinsfile", ".Netrc",
            "Documents/taxes/return", ".config/foreign/x",
        ] { try write("x", path) }
        try FileManager.default.createSymbolicLink(atPath: home + "/.config/linked", withDestinationPath: home + "/Documents")
        if Identity.isRoot { chown(home + "/.config/foreign", 1, 1) }
        let read = """
            cat ~/.ssh/config ~/.gnupg/secring ~/.mozilla/firefox/x ~/.local/share/keyrings/login ~/.config/gh/hosts.yml ~/.bashrc
            cat ~/.config/grantfs/profiles/own ~/.config/linked/taxes/return ~/.config/linked ~/.config/other/credentials.json ~/.netrc
            cat ~/.config/foreign/x ~/.Netrc; stat ~/.config ~/.local/share ~/Documents ~/Documents/taxes ~/.local ~/src
            """
        let written = """
            echo x >> ~/.bashrc; echo x > ~/.vimrc; mkdir -p ~/.vim/plugin; echo x > ~/src/proj/Jenkinsfile; mkdir ~/.config/systemd
            echo x > ~/.config/autostart; echo x > ~/plain; mkdir -p ~/.config/git; echo x > ~/src/proj/.envrc; mkdir ~/.config/grantfs/new
            """
        try run("{ \(read)\n\(written); } >/dev/null 2>&1; true").orThrow()
        let result = try grantfs(["profile"])
        #expect(!result.text.contains("path ="), "\(result.text)")
        #expect(result.status == 1 && result.text.contains("# not proposed: ~/.ssh/config (1 use): it may hold keys"), "\(result)")
        // What is not known to be harmless needs a decision of the person.
        try run("cat ~/.config/other/plain ~/.config/other/absent >/dev/null 2>&1; true").orThrow()
        #expect(try profile().contains("# path = \"~/.config/other\"\n# access = \"read-only\""))
        // Installed programs do not.
        try write("x", ".cargo/registry/index")
        try run("cat ~/.cargo/registry/index >/dev/null; true").orThrow()
        #expect(try profile().contains("\npath = \"~/.cargo/registry\"\naccess = \"read-only\""))
    }

    @Test("A profile proposes no directory with a grant of the run, the store, or files that grantfs obeys")
    func ownDirectories() throws {
        let inner = try fixture.directory("home/.config/tool/inner")
        try write("x", ".conf/x")
        try write("x", ".data/x")
        let variables = ["HOME": home, "XDG_CONFIG_HOME": home + "/.conf", "GRANTFS_STORE": home + "/.data/store"]
        let grantfs = { (words: [String]) in
            try Command.run([Programs.grantfs] + words, environment: fixture.environment.merging(variables) { $1 }, within: 60)
        }
        let run = { (options: [String]) in
            try grantfs(
                ["run", "--learn", "--grant", inner] + options + [
                    "--", "bash", "-c", "{ cat ~/.config/tool/conf ~/.data/x; echo x > ~/.conf/x; } 2>/dev/null; true",
                ]
            ).orThrow()
        }
        _ = try run([])
        let text = allowed(try grantfs(["profile"]).orThrow().text)
        let paths = text.split(separator: "\n").filter { $0.hasPrefix("path = ") }
        #expect(paths == [#"path = "~/.config/tool/conf""#, #"path = "~/.data/x""#], "\(text)")
        #expect(text.contains("# not proposed: ~/.conf/x (1 use): for writing: it holds \(home)/.conf/grantfs"), "\(text)")
        try write(text, ".conf/grantfs/profiles/tool")
        #expect(try run(["--tool", "tool"]).text == "x\nx")
        let names = try grantfs(["why", "--json"]).orThrow().decoded(as: Report.self).below(home)
        #expect(names == ["~/.conf/x": "write"])
    }

    @Test("A profile by itself grants nothing for writing, and nothing secret")
    func nothingByItself() throws {
        let places = [
            ".local/bin/git", ".local/lib/python3/u.pth", ".config/sway/config", ".local/share/applications/x", ".oh-my-zsh/x",
            ".cache/nvim/luac", ".nvm/nvm.sh",
            ".msmtprc", ".config/openai/x", ".kaggle/x", ".local/lib/other", "backup/home/.ssh/id", "work/acme/.aws/credentials",
        ]
        for place in places { try write("x", place) }
        try run(places.map { "cat ~/\($0); echo x >> ~/\($0); echo x > ~/\($0).new" }.joined(separator: "\n") + "\ntrue").orThrow()
        let text = try profile()
        let active = text.split(separator: "\n").filter { $0.first != "#" && $0.hasPrefix("path") }
        #expect(
            active.allSatisfy { $0 == "path = \"~/.local/bin\"" } && text.contains("# path = \"~/.local/lib\"")
                && !text.contains("\naccess = \"read-write\""), "\(text)")
        #expect(!text.contains("path = \"~/backup") && !text.contains("path = \"~/work/acme/.aws"), "\(text)")
    }

    @Test("A profile follows no link that is put in a place later")
    func laterLink() throws {
        try run("cat ~/.config/tool/conf; true").orThrow()
        try write(allowed(try profile()), ".config/grantfs/profiles/tool")
        #expect(try run("cat ~/.config/tool/conf", ["--tool", "tool"]).orThrow().lines == ["x"])
        try Command.shell("cd \"$1/.config\"; mv tool former; ln -s ../.ssh tool", home).orThrow()
        let output = try run("cat ~/.config/tool/config", ["--tool", "tool"])
        #expect(output.status == 1 && output.errors.contains("a link leads to"), "\(output)")
    }

    @Test("Four files in one directory are proposed as that directory")
    func coarse() throws {
        for name in ["b", "c", "deep/d"] { try write("x\n", "src/lib/" + name) }
        try run("cat ~/src/lib/a ~/src/lib/b ~/src/lib/c ~/src/lib/deep/d; true").orThrow()
        let text = allowed(try profile())
        #expect(text.split(separator: "\n").filter { $0.hasPrefix("path = ") } == [#"path = "~/src/lib""#], "\(text)")
        #expect(text.contains("[[grant]]  # 4 uses"), "\(text)")
    }

    @Test("A read-only grant that was taken back is not proposed for writing")
    func withdrawn() throws {
        let read = try fixture.directory("home/src/read")
        let child = try Child(
            [
                Programs.grantfs, "run", "--grant", read + ":ro", "--", "bash", "-c",
                "echo ready; read line; echo x > ~/src/read/file; exit 0",
            ], environment: environment)
        try child.expect("ready")
        try grantfs(["revoke", "read"]).orThrow()
        child.send("go")
        #expect(child.wait(within: 60) == 0)
        let result = try grantfs(["profile"])
        #expect(result.status == 1 && result.text.contains("was withdrawn or changed"), "\(result)")
        #expect(try grantfs(["why"]).orThrow().text.contains("its grant was withdrawn or read-only"))
    }

    @Test("`why` and `profile` name refusals by rules, and propose nothing for them")
    func refusals() throws {
        try write("x", "src/work/.env")
        try run("cat ~/src/work/.env 2>/dev/null; true", ["--hide", ".env"]).orThrow()
        let report = try report()
        #expect(report.refused.first?.path == source + "/.env" && report.refused.first?.rule?.contains("--hide") == true)
        #expect(try grantfs(["why"]).orThrow().text.contains("refused in its grants:\n  ~/src/work/.env  "))
        let result = try grantfs(["profile"])
        #expect(result.status == 1 && result.text.contains("# not proposed: ~/src/work/.env"), "\(result)")
    }

    @Test("Refused hosts are recorded without `--learn`, and proposed only by plain names")
    func hosts() throws {
        let targets = [
            "evil.example:443", "evil.example:443", "*.example:443", "!evil.example:80", "10.0.0.1:80", "[::1]:80", "localhost:80",
            "a.example:x",
        ]
        let asking = targets.map {
            "exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:}; printf 'CONNECT \($0) HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3 >/dev/null; exec 3>&-"
        }
        try run(asking.joined(separator: "\n"), ["--network-hosts", "example.org"]).orThrow()
        let report = try report()
        #expect(report.hosts.first { $0.host == "evil.example:443" }?.count == 2, "\(report.hosts)")
        let text = try profile()
        let list = text.split(separator: "\n").filter { !$0.hasPrefix("#") }
        #expect(list == ["network = [", "    \"evil.example:443\",  # 2 uses", "]"], "\(text)")
        try write(text, ".config/grantfs/profiles/hosts")
        try run("true", ["--tool", "hosts"]).orThrow()
    }

    @Test("`why` and `profile` take a unique beginning of a run's name")
    func selection() throws {
        let none = try grantfs(["why"])
        #expect(none.status == 1 && none.errors.contains("there is no run"), "\(none)")
        try run("cat ~/notes; true").orThrow()
        let first = try report().run
        try run("cat ~/.bashrc; true").orThrow()
        #expect(try report(String(first.prefix(12))).run == first)
        #expect(try report().run != first, "the newest is the default")
        #expect(try grantfs(["profile", String(first.dropFirst(4))]).text.contains("path = \"~/notes\""))
        let unknown = first.hasSuffix("0") ? String(first.dropLast()) + "1" : String(first.dropLast()) + "0"
        for command in ["why", "profile"] {
            let output = try grantfs([command, unknown])
            #expect(
                output.status == 1 && output.errors.contains("has no run “\(unknown)”") && output.errors.contains("grantfs log"),
                "\(output)")
            #expect(try grantfs([command, "run-"]).errors.contains("2 runs begin with"))
        }
        #expect(try grantfs(["why", "--view", "x", first]).status == 2)
        let path = try grantfs(["why", "./" + first])
        #expect(path.errors.contains("no grant leads to"), "\(path)")
    }
}
