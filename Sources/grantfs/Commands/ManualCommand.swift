import GrantCommandLine
import GrantDeclarations
import GrantModel

/// `grantfs manual`: the parts of grantfs(1) that are made from the declarations.
enum ManualCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        switch String(decoding: arguments.operands[0], as: UTF8.self) {
        case "synopsis": try Terminal.print(ManualText.synopsis(of: CommandLineProgram.declaration), terminator: "")
        case "options": try Terminal.print(ManualText.options(of: CommandLineProgram.declaration), terminator: "")
        case let part: throw GrantError(.usage, "invalid part of the manual “\(part)”", advice: "use synopsis or options")
        }
        return 0
    }
}
