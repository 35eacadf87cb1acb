/// The help, made from the declarations.
package enum HelpText {
    package static func program(_ program: ProgramDeclaration) -> String {
        var lines = ["Usage: \(program.name) COMMAND [OPTIONS] …", ""] + wrapped(program.summary, width: 78)
        let visible = program.commands.filter { !$0.isHidden }
        let width = visible.map(\.name.count).max() ?? 0
        for group in grouped(visible, program.groups) {
            lines += ["", group.title + ":"] + columns(group.commands.map { ($0.name, $0.summary) }, width: width)
        }
        lines += ["", "Options of every command:"]
        lines += columns(program.commonOptions.filter { !$0.isHidden }.map { (words(of: $0), $0.help) })
        lines += ["", "“\(program.name) COMMAND --help” says more. Exit status: 0 done, 1 failed, 2 usage,"]
        lines += ["3 recorded, but some mount has not confirmed it."]
        return lines.joined(separator: "\n") + "\n"
    }

    private static func grouped(
        _ commands: [CommandDeclaration], _ groups: [(title: String, commands: [String])]
    ) -> [(title: String, commands: [CommandDeclaration])] {
        let named = Set(groups.flatMap(\.commands))
        let others = commands.filter { !named.contains($0.name) }
        let all = groups.map { group in (group.title, group.commands.compactMap { name in commands.first { $0.name == name } }) }
        return others.isEmpty ? all : all + [("More", others)]
    }

    package static func command(_ command: CommandDeclaration, of program: ProgramDeclaration) -> String {
        if !command.subcommands.isEmpty { return overview(of: command, of: program) }
        let operands = command.operands.map(\.usage).joined(separator: " ")
        let usage = ["Usage: \(program.name) \(command.fullName)", "[OPTIONS]", operands].filter { !$0.isEmpty }.joined(separator: " ")
        var lines = [usage, ""] + wrapped(command.summary, width: 78) + ["", "Options:"]
        let options = (command.options + program.commonOptions).filter { !$0.isHidden }
        lines += columns(options.map { (words(of: $0), $0.help) })
        for note in command.notes { lines += [""] + wrapped(note, width: 78) }
        return lines.joined(separator: "\n") + "\n"
    }

    /// The help for a command with subcommands.
    private static func overview(of command: CommandDeclaration, of program: ProgramDeclaration) -> String {
        let name = "\(program.name) \(command.name)"
        var lines = ["Usage: \(name) SUBCOMMAND [OPTIONS] …", ""] + wrapped(command.summary, width: 78) + ["", "Subcommands:"]
        let visible = command.subcommands.filter { !$0.isHidden }
        lines += columns(visible.map { (([$0.name] + $0.operands.map(\.usage)).joined(separator: " "), $0.summary) })
        lines += ["", "Options of every subcommand:"]
        lines += columns(program.commonOptions.filter { !$0.isHidden }.map { (words(of: $0), $0.help) })
        for note in command.notes { lines += [""] + wrapped(note, width: 78) }
        lines += ["", "“\(name) SUBCOMMAND --help” lists the options of a subcommand."]
        return lines.joined(separator: "\n") + "\n"
    }

    /// `-f, --foreground`, `--view V`.
    static func words(of option: OptionDeclaration) -> String {
        let short = option.short.map { "-\($0), " } ?? ""
        return short + "--" + option.long + (option.value.map { " " + $0 } ?? "")
    }

    private static func columns(_ rows: [(String, String)], width: Int? = nil) -> [String] {
        let width = width ?? min(26, rows.map(\.0.count).max() ?? 0)
        return rows.flatMap { (left, right) -> [String] in
            let text = wrapped(right, width: 78 - width - 4)
            let indent = String(repeating: " ", count: width + 4)
            let head = "  " + left + String(repeating: " ", count: max(0, width - left.count)) + "  "
            let isLong = left.count > width
            let first = isLong ? ["  " + left, indent + (text.first ?? "")] : [head + (text.first ?? "")]
            return first + text.dropFirst().map { indent + $0 }
        }
    }

    private static func wrapped(_ text: String, width: Int) -> [String] {
        var lines: [String] = []
        var line = ""
        for word in text.split(separator: " ") {
            if !line.isEmpty, line.count + 1 + word.count > width {
                lines.append(line)
                line = ""
            }
            line += (line.isEmpty ? "" : " ") + word
        }
        return line.isEmpty ? lines : lines + [line]
    }
}
