import Glibc
import GrantAdministration
import GrantModel
import LinuxFS

/// What is asked for a sandbox, by the command line.
struct SandboxRequest {
    struct Wish {
        let path: [UInt8]
        let access: Access
    }

    private(set) var grants: [Wish] = []
    private(set) var binds: [SandboxBind] = []
    private(set) var variables: [(name: String, value: [UInt8])] = []
    let hasNetwork: Bool

    init(_ arguments: ParsedArguments) throws(GrantError) {
        hasNetwork = arguments.has("network")
        grants += try SandboxRequest.wishes(arguments.options["grant"] ?? [])
        if !grants.isEmpty, arguments.has("view") {
            throw GrantError(.usage, "run: --grant makes a view of its own", advice: "leave --view out, or use grantfs grant --view")
        }
        for word in arguments.options["ro-bind"] ?? [] { binds.append(try SandboxBind(word)) }
        variables += try SandboxRequest.variables(arguments.options["env"] ?? [])
    }

    /// A file that was to be granted for reading: it is bound instead.
    mutating func bind(_ file: SandboxBind) { binds.append(file) }

    /// `DIR`, `DIR:ro`, and `DIR:rw` for a directory whose name ends in `:ro`.
    private static func wishes(_ words: [[UInt8]]) throws(GrantError) -> [Wish] {
        var wishes: [Wish] = []
        for word in words {
            let ending = word.suffix(3)
            let isMarked = ending.elementsEqual(":ro".utf8) || ending.elementsEqual(":rw".utf8)
            let path = isMarked ? Array(word.dropLast(3)) : word
            if path.isEmpty { throw GrantError(.usage, "the value of --grant is empty") }
            wishes.append(Wish(path: path, access: ending.elementsEqual(":ro".utf8) ? .readOnly : .readWrite))
        }
        return wishes
    }

    private static func variables(_ words: [[UInt8]]) throws(GrantError) -> [(name: String, value: [UInt8])] {
        var result: [(name: String, value: [UInt8])] = []
        for word in words {
            let equals = word.firstIndex(of: UInt8(ascii: "="))
            let name = try ParsedArguments.text(Array(word[..<(equals ?? word.endIndex)]), "the name in --env")
            if name.isEmpty { throw GrantError(.usage, "the value of --env has no name", advice: "--env NAME=VALUE") }
            let value = equals.map { Array(word[($0 + 1)...]) } ?? SandboxEnvironment.value(of: name)
            if let value { result.append((name, value)) }
        }
        return result
    }
}
