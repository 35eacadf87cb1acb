/// What stands for an operand or the value of an option, as far as a shell can complete it.
enum ValueKind: Hashable {
    case grant
    case view
    case directory
    case file
    /// Where a view is mounted now.
    case mountpoint
    case mountOptions
    /// A program, and after it its own words.
    case command
    case choices([String])
    case anything

    /// By the word that the help shows for it: one word means one thing in every command.
    init(_ metavariable: String) {
        self =
            switch metavariable {
            case "SELECTOR": .grant
            case "V", "VIEW": .view
            case "DIR", "DIR[:ro]", "MOUNTPOINT", "START": .directory
            case "PATH", "FILE": .file
            case "OPTS": .mountOptions
            case "COMMAND", "CMD": .command
            default: .anything
            }
    }
}

extension OptionDeclaration {
    var kind: ValueKind { choices.isEmpty ? ValueKind(value ?? "") : .choices(choices) }
}

extension CommandDeclaration {
    /// What the operand at `place`, counted from 0, stands for; nil where there is none.
    func kind(ofOperand place: Int) -> ValueKind? {
        guard let operand = place < operands.count ? operands[place] : operands.last else { return nil }
        if place >= operands.count, !operand.isRepeatable { return nil }
        // Whoever unmounts has mounts in mind.
        if name == "unmount" { return .mountpoint }
        if !operand.choices.isEmpty { return .choices(operand.choices) }
        let kind = ValueKind(operand.name)
        // What follows a program's name are mostly its files.
        return place >= operands.count && kind == .command ? .file : kind
    }
}
