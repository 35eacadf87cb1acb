import GrantCommandLine

/// The declarations as mdoc(7).
enum ManualText {
    /// The commands with their operands. The options appear once, at `options`.
    static func synopsis(of program: ProgramDeclaration) -> String {
        program.commands.filter { !$0.isHidden }.flatMap(\.leaves).map { command -> String in
            let options = command.options.contains { !$0.isHidden } ? [".Op Ar options"] : []
            let operands = command.operands.map { operand -> String in
                let name =
                    (operand.isCommand ? "Cm -- Ar " : "Ar ") + escaped(operand.name.lowercased()) + (operand.isRepeatable ? " ..." : "")
                return operand.isOptional ? ".Op \(name)" : ".\(name)"
            }
            return ([".Nm", ".Cm \(command.fullName)"] + options + operands).joined(separator: "\n") + "\n"
        }.joined()
    }

    /// Returns each command and subcommand with its options. The common options come last.
    static func options(of program: ProgramDeclaration) -> String {
        let commands = program.commands.filter { !$0.isHidden }.flatMap(\.leaves).filter { $0.options.contains { !$0.isHidden } }
        let lists = commands.map { "Of\n.Cm \($0.fullName) :\n" + list($0.options) } + ["Of every command:\n" + list(program.commonOptions)]
        return lists.joined(separator: ".Pp\n")
    }

    private static func list(_ options: [OptionDeclaration]) -> String {
        let items = options.filter { !$0.isHidden }.map { ".It " + words(of: $0) + "\n" + escaped(sentence($0.help)) + "\n" }
        return ".Bl -tag -width Ds -compact\n" + items.joined() + ".El\n"
    }

    /// `Fl f | Fl -foreground`, `Fl -view Ar v`.
    private static func words(of option: OptionDeclaration) -> String {
        let long = "Fl -" + option.long + (option.value.map { " Ar " + escaped($0.lowercased()) } ?? "")
        return option.short.map { "Fl \($0) | " + long } ?? long
    }

    private static func sentence(_ text: String) -> String {
        text.prefix(1).uppercased() + text.dropFirst() + (text.hasSuffix(".") ? "" : ".")
    }

    /// Escapes everything that would be a request or an escape.
    private static func escaped(_ text: String) -> String {
        let marks: [Character: String] = ["\\": "\\e", "…": "...", "“": "\\(lq", "”": "\\(rq", "’": "\\(cq"]
        let body = text.map { marks[$0] ?? String($0) }.joined()
        return body.hasPrefix(".") || body.hasPrefix("'") ? "\\&" + body : body
    }
}
