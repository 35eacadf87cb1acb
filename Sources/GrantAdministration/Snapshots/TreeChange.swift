import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// A change of one name.
public struct TreeChange: Sendable {
    public enum Kind: String, Sendable {
        case added, removed, changed
    }

    /// A property of a file that differs. `unread`: the file at the name, or the directory's
    /// contents, could not be read.
    public enum Aspect: String, Sendable, CaseIterable {
        case type, contents, target, mode, owner, attributes, links, time, unread
    }

    /// An added directory with a path of this length is one change with everything in it: PATH_MAX.
    static let longestPath = 4096

    /// The index of the directory.
    public let directory: Int
    /// The path of that directory.
    public let root: [UInt8]
    /// The path below it, or empty for the directory itself.
    public let path: [UInt8]
    public let kind: Kind
    public internal(set) var aspects: Set<Aspect>
    public let isDirectory: Bool
    /// The status before, as far as the copy has it, or nil if it did not exist.
    let before: FileStatus?
    let now: FileStamp?
    let nowStatus: FileStatus?

    /// The absolute path.
    public var place: [UInt8] { path.isEmpty ? root : CanonicalPath.join(root, path) }
    public var modeBefore: UInt32? { before.map { $0.st.st_mode } }
    public var modeNow: UInt32? { nowStatus.map { $0.st.st_mode } }
    public var sizeBefore: Int64? { before.map { Int64($0.st.st_size) } }
    public var sizeNow: Int64? { nowStatus.map { Int64($0.st.st_size) } }

    /// Whether the present object is missing or of another type.
    var isMissing: Bool { now == nil || aspects.contains(.type) }
    /// Whether it is a directory whose contents were not compared.
    var isOpaque: Bool { kind == .added && isDirectory && path.count >= TreeChange.longestPath }
}
