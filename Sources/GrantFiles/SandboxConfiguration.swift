import GrantModel

/// What the configuration of another program's sandbox permits, with the paths as they are written.
package struct SandboxConfiguration: Sendable {
    /// A path, or a pattern of paths, and the key that it belongs to.
    package struct Place: Sendable {
        package let path: String
        /// The file and the key, for messages.
        package let key: String

        package init(_ path: String, _ key: String) { (self.path, self.key) = (path, key) }
    }

    package enum Network: Sendable, Equatable {
        /// Not specified.
        case unknown
        case none
        case all
        /// The words of `--network-hosts`.
        case hosts([String])
    }

    package var writable: [Place] = []
    package var readable: [Place] = []
    /// They win over `writable` and `readable`.
    package var hidden: [Place] = []
    package var unwritable: [Place] = []
    /// Read-only if they lie in a writable directory, and otherwise nothing.
    package var readOnlyParts: [Place] = []
    package var network = Network.unknown
    /// Whether files that other programs execute are protected (`ToolProtection`).
    package var protectsTools = false
    /// Exceptions of that.
    package var unprotected: [String] = []

    package init() {}

    /// The words for the allowed domains, with the denied ones.
    package static func hosts(allowed: [String], denied: [String]) -> Network {
        let hosts = allowed.filter { !denied.contains($0) } + denied.map { "!" + $0 }
        return hosts.isEmpty ? .none : .hosts(hosts)
    }
}
