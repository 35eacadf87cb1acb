import GrantCommandSupport
import GrantFiles
import GrantModel

/// Reads the settings of Anthropic's sandbox runtime, which are JSON.
struct SandboxRuntimeFile {
    private let file: String

    init(file: String) { self.file = file }

    /// Throws `.invalidFile`, with the key, for anything that is unknown or cannot be had.
    func configuration(_ bytes: [UInt8]) throws(GrantError) -> SandboxConfiguration {
        guard let reader = JSONReader(), let document = reader.read(bytes) else {
            throw GrantError(.invalidFile, "\(file): this is not JSON")
        }
        var result = SandboxConfiguration()
        // The runtime protects them in each writable directory.
        result.protectsTools = true
        var (allowed, denied): ([String]?, [String]) = (nil, [])
        for (key, value) in try members(document, "the file") {
            switch key {
            case "filesystem": try readFiles(value, into: &result)
            case "network":
                for (key, value) in try members(value, key) {
                    let name = "network.\(key)"
                    switch key {
                    case "allowedDomains": allowed = try texts(value, name)
                    case "deniedDomains": denied = try texts(value, name)
                    // A sandbox reaches no socket of another program, and may have servers of its own.
                    case "allowAllUnixSockets", "allowLocalBinding": _ = try boolean(value, name)
                    case "allowUnixSockets": if try !texts(value, name).isEmpty { throw inexpressible(name) }
                    default: try requireUnset(key, value, name)
                    }
                }
            // They concern how the runtime looks for files to protect, and its messages.
            case "ignoreViolations", "ripgrep", "mandatoryDenySearchDepth", "allowPty": continue
            default: try requireUnset(key, value, key)
            }
        }
        if let allowed { result.network = SandboxConfiguration.hosts(allowed: allowed, denied: denied) }
        return result
    }

    private func readFiles(_ value: JSON, into result: inout SandboxConfiguration) throws(GrantError) {
        for (key, value) in try members(value, "filesystem") {
            let name = "filesystem.\(key)"
            switch key {
            case "allowWrite": result.writable = try places(value, name)
            case "allowRead": result.readable = try places(value, name)
            case "denyRead": result.hidden = try places(value, name)
            case "denyWrite": result.unwritable = try places(value, name)
            case "allowGitConfig": if try boolean(value, name) { result.unprotected = ["!**/.git/config", "!.gitconfig"] }
            default: throw unknown(name)
            }
        }
    }

    private static let known = [
        "network.httpProxyPort", "network.socksProxyPort", "network.mitmProxy", "network.allowMachLookup", "enableWeakerNestedSandbox",
        "enableWeakerNetworkIsolation", "seccomp",
    ]

    /// Throws if a key that cannot be had is set, or a key is unknown.
    private func requireUnset(_ key: String, _ value: JSON, _ name: String) throws(GrantError) {
        guard Self.known.contains(name) else { throw unknown(name) }
        switch value {
        case .null, .bool(false): return
        default: throw inexpressible(name)
        }
    }

    private func members(_ value: JSON, _ key: String) throws(GrantError) -> [(String, JSON)] {
        guard case .object(let members) = value else { throw wrong("\(key) is not an object") }
        for (index, member) in members.enumerated() where members[..<index].contains(where: { $0.0 == member.0 }) {
            throw wrong("“\(member.0)” is there twice in \(key)")
        }
        return members
    }

    private func places(_ value: JSON, _ key: String) throws(GrantError) -> [SandboxConfiguration.Place] {
        try texts(value, key).map { SandboxConfiguration.Place($0, "\(file): \(key)") }
    }

    private func texts(_ value: JSON, _ key: String) throws(GrantError) -> [String] {
        guard case .array(let values) = value else { throw wrong("“\(key)” is not a list") }
        var texts: [String] = []
        for value in values {
            guard case .string(let text) = value else { throw wrong("“\(key)” has an item that is not text") }
            texts.append(text)
        }
        return texts
    }

    private func boolean(_ value: JSON, _ key: String) throws(GrantError) -> Bool {
        guard case .bool(let answer) = value else { throw wrong("“\(key)” is neither true nor false") }
        return answer
    }

    private func wrong(_ message: String, advice: String? = nil) -> GrantError {
        GrantError(.invalidFile, "\(file): \(message)", advice: advice)
    }
    private func unknown(_ key: String) -> GrantError { wrong("unknown key “\(key)”", advice: "leave it out") }
    private func inexpressible(_ key: String) -> GrantError {
        wrong("“\(key)” is not possible in a sandbox of grantfs", advice: "leave it out")
    }
}
