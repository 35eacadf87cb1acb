import Foundation
import GrantSystem
import Testing
import GrantViewTree

/// A directory with files, and a tree that knows it as one scope.
final class KnownPlace: @unchecked Sendable {
    let path: String
    let tree: NodeTree
    let scope: ScopeNodes
    /// The node of the directory itself.
    let root: UInt64

    /// `byHandle`: whether nodes are opened again by handle, where this user may, or by name.
    init(descriptorLimit: Int = 1_000, byHandle: Bool = true) throws {
        var template = Array("/tmp/grantfs-tree.XXXXXX".utf8CString)
        path = String(cString: try #require(mkdtemp(&template)))
        tree = NodeTree(descriptorLimit: descriptorLimit)
        // open_by_handle_at(2) needs CAP_DAC_READ_SEARCH.
        let base = byHandle && getuid() == 0 ? HandleBase(try FileDescriptor.open(path.utf8, O_RDONLY | O_DIRECTORY)) : nil
        scope = tree.addScope(1, handleBase: base, crossesMounts: false)
        let directory = try FileDescriptor.open(path.utf8, OpenFlags.path | O_DIRECTORY)
        let status = try directory.status()
        let known = tree.internRoot(directory, status, of: scope)
        root = try #require(known)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    func make(_ name: String) throws { try Data(name.utf8).write(to: URL(fileURLWithPath: path + "/" + name)) }

    /// Looks a file up as an operation does: `name` in the directory `parent`.
    func lookup(_ name: String, in parent: UInt64? = nil, below directory: String = "") throws -> UInt64 {
        let descriptor = try FileDescriptor.open((path + "/" + directory + name).utf8, OpenFlags.path | O_NOFOLLOW)
        let status = try descriptor.status()
        let id = tree.intern(descriptor, status, in: scope, found: parent ?? root, as: name)
        return try #require(id)
    }
}

extension NodeTree {
    /// `nodes.find`, for #expect and #require, which look into what they are given and so need to copy it.
    func node(_ id: UInt64) -> UnsafeMutablePointer<Node>? { nodes.find(id) }
}
