import GrantCommandLine

/// The kind of an operand or of an option's value, for completion.
enum ValueKind: Hashable {
    case grant
    case view
    case directory
    case file
    /// The mountpoint of a view.
    case mountpoint
    case mountOptions
    /// A program, followed by its own arguments.
    case command
    case choices([String])
    case anything

    /// Derived from the metavariable in the help: one name means the same in every command.
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
    /// Returns the kind of the operand at `place`, counted from 0, or nil if there is none.
    func kind(ofOperand place: Int) -> ValueKind? {
        guard let operand = place < operands.count ? operands[place] : operands.last else { return nil }
        if place >= operands.count, !operand.isRepeatable { return nil }
        // For `unmount`, mountpoints are most useful.
        if name == "unmount" { return .mountpoint }
        if !operand.choices.isEmpty { return .choices(operand.choices) }
        let kind = operand.name == "NAME" ? .grant : ValueKind(operand.name)
        // After a program's name come mostly files.
        return place >= operands.count && kind == .command ? .file : kind
    }
}
