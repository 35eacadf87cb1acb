import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The file in which the process behind a mount of several cache modes says what it has done about the grants that are mounted there. Commands
/// wait for that, because a grant's name is refused until then, and the mount's daemon does not show the names of those that are missing.
public struct PlacedGrants: Sendable {
    public enum Place: String, Sendable {
        /// Its directory is mounted.
        case mounted
        /// Its directory cannot be found now. The mount's daemon reads that here.
        case missing
        /// The same, and the daemon shows the name no longer.
        case hidden
    }

    /// What the file says.
    public struct Contents: Sendable {
        /// The process that has written it; nil when there is no file.
        public let process: ProcessIdentity?
        /// The line of each grant, by its id.
        private let lines: [Substring: Substring]

        init(parsing text: String) {
            var (process, lines): (ProcessIdentity?, [Substring: Substring]) = (nil, [:])
            for line in text.split(separator: "\n") {
                let words = line.split(separator: " ")
                if words.count == 4, words[0] == PlacedGrants.processWord, let pid = Int32(words[1]), let start = UInt64(words[2]) {
                    process = ProcessIdentity(pid: pid, start: start, bootID: String(words[3]))
                } else if words.count > 1 {
                    lines[words[1]] = line
                }
            }
            (self.process, self.lines) = (process, lines)
        }

        /// Whether the grant is mounted, or missing and not shown, as it is recorded here.
        public func hold(_ grant: Grant) -> Bool {
            guard let line = lines[Substring(grant.id.description)] else { return false }
            return line == PlacedGrants.line(grant, .mounted) || line == PlacedGrants.line(grant, .hidden)
        }

        /// Whether the directory of the grant, in this activation and under this name, cannot be found now.
        public func isMissing(_ grant: Grant) -> Bool {
            guard let line = lines[Substring(grant.id.description)] else { return false }
            return line.hasPrefix(PlacedGrants.beginning(grant, .missing)) || line.hasPrefix(PlacedGrants.beginning(grant, .hidden))
        }
    }

    private let path: String

    /// `mount`: the id of the mount in which they are (`ShownViews.main`).
    public init(in mount: GrantID, of store: GrantStore) { path = "\(store.runDirectory)/\(mount)\(PlacedGrants.suffix)" }

    private static let suffix = ".placed"
    private static let processWord = "process"
    private static let own = ProcessIdentity.own.map { "\(processWord) \($0.pid) \($0.start) \($0.bootID)\n" } ?? ""

    private static func beginning(_ grant: Grant, _ place: Place) -> String {
        "\(place.rawValue) \(grant.id) \(grant.activation) \(Hexadecimal.text(grant.name.bytes)) "
    }

    /// All that decides how the grant is mounted.
    private static func line(_ grant: Grant, _ place: Place) -> String {
        beginning(grant, place) + "\(grant.access.rawValue) \(grant.cache?.rawValue ?? "-")"
    }

    /// The contents for `write`: that this process has done so about these grants.
    public static func text(_ grants: [(grant: Grant, place: Place)]) -> String {
        own + grants.map { line($0.grant, $0.place) + "\n" }.sorted().joined()
    }

    /// Replaces the file's contents, in one step for readers.
    public func write(_ text: String) throws(Errno) {
        let bytes = Array(text.utf8)
        let file = try FileDescriptor.open(new.utf8, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode: 0o600)
        guard Glibc.write(file.number, bytes, bytes.count) == bytes.count else { throw Errno(EIO) }
        guard rename(new, path) == 0 else { throw Errno(errno) }
    }

    private var new: String { path + ".new" }

    /// Nothing is mounted when it cannot be read.
    public var contents: Contents {
        Contents(parsing: (try? File.contents(of: path.utf8)).map { String(decoding: $0, as: UTF8.self) } ?? "")
    }

    public func remove() {
        unlink(path)
        unlink(new)
    }
}
