import GrantModel
import Testing

import GrantDeclarations
@testable import GrantCommandLine
@testable import grantfs

private func words(_ text: String) -> [[UInt8]] { text.split(separator: " ").map { Array($0.utf8) } }

private func parse(_ words: [[UInt8]]) throws -> ParsedArguments {
    guard case .run(_, let arguments) = try ArgumentParser(program: CommandLineProgram.declaration).parse(words) else {
        throw GrantError(.system, "no command to run")
    }
    return arguments
}

private func failure(_ text: String) -> GrantError? {
    do throws(GrantError) {
        _ = try ArgumentParser(program: CommandLineProgram.declaration).parse(words(text))
        return nil
    } catch {
        return error
    }
}

@Suite struct ArgumentParserTests {
    @Test(
        "Options may precede or follow the command",
        arguments: [
            "grant --view v --read-only /d", "grant /d --read-only --view=v", "--view v grant --read-only /d",
            "--view=v --read-only grant /d", "grant --view v --read-only -- /d",
        ])
    func optionsMayStandAnywhere(_ line: String) throws {
        let arguments = try parse(words(line))
        #expect(arguments.command == "grant")
        #expect(arguments.operands == [Array("/d".utf8)])
        #expect(try arguments.text("view") == "v")
        #expect(arguments.has("read-only"))
        #expect(!arguments.wantsJSON)
    }

    @Test("`--` ends the options")
    func twoDashesEndTheOptions() throws {
        let arguments = try parse(words("revoke -- --json -x --"))
        #expect(arguments.operands == words("--json -x --"))
        #expect(!arguments.wantsJSON)
    }

    @Test("A lone `-` is an operand")
    func aDashAloneIsNoOption() throws {
        #expect(try parse(words("revoke -")).operands == [Array("-".utf8)])
    }

    @Test("An option's value may look like an option or be empty")
    func aValueMayLookLikeAnOptionOrBeEmpty() throws {
        #expect(try parse(words("grant /d --name --json")).bytes("name") == Array("--json".utf8))
        #expect(try parse(words("grant /d --name=")).bytes("name") == [])
        #expect(try parse(words("grant /d --name=a=b,c")).bytes("name") == Array("a=b,c".utf8))
    }

    @Test("The last value of an option counts, and a repeatable option keeps all")
    func theLastOneCountsAndRepeatedOnesAreKept() throws {
        #expect(try parse(words("list --view a --view b")).text("view") == "b")
        #expect(try parse(words("mount v d -o a,b -oc --options=d")).options["options"] == words("a,b c d"))
    }

    @Test("Short options can be joined")
    func lettersMayBeJoined() throws {
        let arguments = try parse(words("mount v d -fo ro"))
        #expect(arguments.has("foreground"))
        #expect(arguments.options["options"] == words("ro"))
        #expect(try parse(words("mount -foro v d")).options["options"] == words("ro"))
    }

    @Test("Argument bytes are kept, and an option's text that is not UTF-8 fails")
    func bytesAreKeptAsTheyAre() throws {
        let arguments = try parse([Array("grant".utf8), [0x2F, 0xFF, 0x0A], Array("--name=".utf8) + [0xFE]])
        #expect(arguments.operands == [[0x2F, 0xFF, 0x0A]])
        #expect(arguments.bytes("name") == [0xFE])
        #expect(throws: GrantError.self) { try arguments.text("name") }
    }

    @Test(
        "An error of the argument parser names the wrong word and exits with 2",
        arguments: [
            ("", "a command is missing"), ("lst", "unknown command “lst” (did you mean “list”?)"),
            ("list name extra", "“extra” is one word too many"),
            ("grant", "DIR is missing"), ("mount v", "MOUNTPOINT is missing"), ("list --viw x", "unknown option “--viw” for list"),
            ("list --viw x", "did you mean “--view”?"), ("list --path x", "unknown option “--path” for list"),
            ("--path x list", "unknown option “--path” for list"), ("list --json=yes", "--json takes no value"),
            ("list --view", "--view needs a value"), ("list -x", "unknown option “-x” for list"), ("mount v d -o", "-o needs a value"),
            ("--nonsense", "unknown option “--nonsense”"), ("revoke --pat x", "did you mean “--path”?"),
            ("fleet", "fleet: a subcommand is missing"), ("fleet --json", "fleet: a subcommand is missing"),
            ("fleet invites h", "unknown subcommand “invites” of fleet (did you mean “invite”?)"),
            ("fleet revoke g", "unknown subcommand “revoke” of fleet (use grantfs revoke --fleet)"),
            ("fleet invite", "fleet invite: HOST is missing (see grantfs fleet invite --help)"),
            ("fleet hosts extra", "fleet hosts: “extra” is one word too many"),
            ("fleet hosts --label a=b", "unknown option “--label” for fleet hosts: it is an option of fleet invite"),
            ("fleet --label a=b hosts", "unknown option “--label” for fleet hosts: it is an option of fleet invite"),
            ("--label a=b fleet hosts", "unknown option “--label” for fleet hosts: it is an option of fleet invite"),
            ("fleet hosts --cert f", "it is an option of fleet init, fleet invite (see grantfs fleet hosts --help)"),
            ("fleet hosts -y", "unknown option “-y” for fleet hosts: it is an option of fleet apply"),
            ("fleet hosts --jsn", "unknown option “--jsn” for fleet hosts (did you mean “--json”?)"),
            ("policy check --view v", "unknown option “--view” for policy check: it is an option of policy explain"),
            ("policy explain", "policy explain: PATH is missing"),
        ])
    func whatIsWrongIsNamed(_ line: String, _ words: String) throws {
        let error = try #require(failure(line))
        #expect(error.description.contains(words), "\(error)")
        #expect(error.exitStatus == 2)
    }

    @Test(
        "The former name of a command names its replacement, whatever follows",
        arguments: [
            ("resolve", "repair SELECTOR"), ("resolve a --recorded", "repair SELECTOR"),
            ("--view v confirm a", "repair SELECTOR --confirm PATH"),
            ("confirm --help", "repair SELECTOR --confirm PATH"), ("watch --fleet --nonsense", "log --follow"),
            ("help watch", "log --follow"),
        ])
    func formerNames(_ line: String, _ replacement: String) throws {
        let error = try #require(failure(line))
        #expect(error.description.hasSuffix("was replaced (use grantfs \(replacement))"), "\(error)")
        #expect(error.exitStatus == 2)
    }

    @Test("The help mentions no former name of a command")
    func helpWithoutFormerNames() {
        let program = CommandLineProgram.declaration
        let texts =
            [HelpText.program(program)] + program.commands.flatMap { [$0] + $0.subcommands }.map { HelpText.command($0, of: program) }
        for name in program.formerCommands.keys {
            #expect(program.command(named: name) == nil)
            for text in texts { #expect(!text.contains("grantfs \(name)") && !text.contains("\n  \(name) "), "\(name)") }
        }
    }

    @Test(
        "Options of a subcommand may precede or follow it",
        arguments: [
            "fleet invite h --label a=b --output f", "fleet --label a=b invite --output=f h", "--label a=b fleet --output f invite h",
            "--output f --label=a=b fleet invite -- h",
        ])
    func subcommandOptionsMayStandAnywhere(_ line: String) throws {
        let arguments = try parse(words(line))
        #expect(arguments.command == "fleet invite" && arguments.operands == words("h"))
        #expect(try arguments.text("output") == "f" && arguments.options["label"] == words("a=b"))
    }

    @Test("The help of a subcommand has its own options only")
    func subcommandHelp() throws {
        let program = CommandLineProgram.declaration
        for command in program.commands where !command.subcommands.isEmpty {
            let overview = HelpText.command(command, of: program)
            for subcommand in command.subcommands {
                #expect(overview.contains("\n  \(subcommand.name)"))
                for line in ["\(subcommand.fullName) --help", "help \(subcommand.fullName)", "--help \(subcommand.fullName) --wrong"] {
                    guard case .help(let shown?) = try ArgumentParser(program: program).parse(words(line)) else {
                        Issue.record("no help for \(line)")
                        continue
                    }
                    let text = HelpText.command(shown, of: program)
                    #expect(text.hasPrefix("Usage: grantfs \(subcommand.fullName) [OPTIONS]"), "\(text)")
                    for option in command.allOptions + program.commonOptions {
                        let isOwn = (subcommand.options + program.commonOptions).contains { $0.long == option.long }
                        let isListed = text.split(separator: "\n").contains { line in
                            let first = line.split(separator: " ").first { $0.hasPrefix("--") }
                            return line.hasPrefix("  -") && first.map { $0 == "--\(option.long)" } ?? false
                        }
                        #expect(isListed == isOwn, "\(line): --\(option.long)")
                    }
                    for line in text.split(separator: "\n") { #expect(line.count <= 80, "\(line)") }
                }
            }
        }
    }

    @Test("The commands that only look say in a question what they answer", arguments: ["list", "status", "top", "metrics", "doctor"])
    func questions(_ name: String) throws {
        let command = try #require(CommandLineProgram.declaration.command(named: name))
        #expect(command.summary.contains("?"), "\(command.summary)")
    }

    @Test(
        "Every command has a help text with `--store` in lines of at most 80 columns",
        arguments: CommandLineProgram.declaration.commands.map(\.name))
    func everyCommandHasHelpAndAStore(_ name: String) throws {
        let parser = ArgumentParser(program: CommandLineProgram.declaration)
        let takesOthersWords = CommandLineProgram.declaration.command(named: name)?.takesOthersWords == true
        let lines = ["\(name) --help", "help \(name)", "--help \(name)", "\(name) -h", "\(name) --help --wrong"]
        for line in lines + (takesOthersWords ? [] : ["\(name) a b c d --help"]) {
            guard case .help(let command?) = try parser.parse(words(line)) else {
                Issue.record("no help for \(line)")
                continue
            }
            let text = HelpText.command(command, of: CommandLineProgram.declaration)
            #expect(text.hasPrefix("Usage: grantfs \(name)"))
            #expect(text.contains("--store DIR"))
            for option in command.options { #expect(text.contains("--\(option.long)") != option.isHidden) }
            for line in text.split(separator: "\n") { #expect(line.count <= 80, "\(line)") }
        }
    }

    @Test("The help begins with the five everyday commands and has each command once")
    func theHelpBeginsWithFiveCommandsAndHasEachOnce() {
        let program = CommandLineProgram.declaration
        let text = HelpText.program(program)
        let lines = text.components(separatedBy: "\n")
        let first = lines.firstIndex(of: "Every day:") ?? 0
        #expect(
            lines[(first + 1)...].prefix { !$0.isEmpty }.map { String($0.dropFirst(2).prefix { $0 != " " }) }.filter { !$0.isEmpty } == [
                "grant", "mount", "list", "revoke", "unmount",
            ])
        for command in program.commands {
            #expect(lines.count { $0.hasPrefix("  \(command.name) ") } == (command.isHidden ? 0 : 1), "\(command.name)")
        }
        for line in lines { #expect(line.count <= 80, "\(line)") }
        // A group would silently omit names that no command has.
        #expect(program.groups.flatMap(\.commands).allSatisfy { program.command(named: $0) != nil })
    }

    @Test("`ls`, `rm` and `umount` are aliases of commands", arguments: [("ls", "list"), ("rm x", "remove"), ("umount x", "unmount")])
    func commandsHaveTheNamesThatOthersGiveThem(_ line: String, _ name: String) throws {
        guard case .run(let command, _) = try ArgumentParser(program: CommandLineProgram.declaration).parse(words(line)) else {
            Issue.record("\(line) does nothing")
            return
        }
        #expect(command.name == name)
    }

    @Test("`-r`, `--ro` and `--read-only` mean read-only", arguments: ["-r", "--ro", "--read-only"])
    func readOnlyHasShortWords(_ word: String) throws {
        guard case .run(_, let arguments) = try ArgumentParser(program: CommandLineProgram.declaration).parse(words("grant \(word) x"))
        else {
            Issue.record("no command")
            return
        }
        #expect(arguments.has("read-only"))
    }

    @Test("`--help` and `--version` need no command")
    func helpAndVersionNeedNoCommand() throws {
        let parser = ArgumentParser(program: CommandLineProgram.declaration)
        guard case .help(nil) = try parser.parse(words("--help")), case .version = try parser.parse(words("--version")) else {
            Issue.record("neither help nor version")
            return
        }
        guard case .run = try parser.parse(words("revoke -- --help")) else {
            Issue.record("an operand was taken for --help")
            return
        }
    }

    /// Before the command, all commands decide together whether an option takes a value.
    @Test("An option takes a value in all commands or in none")
    func anOptionMeansTheSameInEveryCommand() {
        let program = CommandLineProgram.declaration
        var known: [String: Bool] = [:]
        // The words after these options decide their meaning before the command.
        for option in program.commands.flatMap(\.allOptions) + program.commonOptions where option.long != "snapshot" {
            #expect((known[option.long] ?? (option.value != nil)) == (option.value != nil), "--\(option.long)")
            known[option.long] = option.value != nil
        }
    }

    @Test("The next word decides whether `--snapshot` takes a value")
    func oneNameTwoMeanings() throws {
        let parser = ArgumentParser(program: CommandLineProgram.declaration)
        for line in ["--snapshot /d coordinate read /x", "--snapshot=/d coordinate read /x", "coordinate --snapshot /d read /x"] {
            guard case .run(let command, let arguments) = try parser.parse(words(line)) else { throw GrantError(.usage, line) }
            #expect(command.name == "coordinate" && arguments.bytes("snapshot") == Array("/d".utf8), "\(line)")
        }
        for line in ["--snapshot run --grant /d -- true", "--snapshot --grant /d run -- true", "run --snapshot --grant /d -- true"] {
            guard case .run(let command, let arguments) = try parser.parse(words(line)) else { throw GrantError(.usage, line) }
            #expect(command.name == "run" && arguments.has("snapshot") && arguments.options["grant"] == [Array("/d".utf8)], "\(line)")
        }
    }
}
