import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// A git worktree or submodule: its file `.git` names the repository, a directory elsewhere.
///
/// Other users may have written that file. So the repository counts only if it names the directory in turn, and both have the same owner.
struct GitLink {
    /// Absolute, without links.
    private let directory: [UInt8]
    /// The path in the file.
    private let named: [UInt8]

    /// The result is nil if the directory has no such file, as nearly all have.
    ///
    /// - Parameter directory: Absolute, without links.
    init?(_ directory: [UInt8]) {
        let start = Array("gitdir: ".utf8)
        guard let opened = try? FileDescriptor.open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW),
            let text = try? Self.contents(of: Array(".git".utf8), in: opened), text.starts(with: start)
        else { return nil }
        (self.directory, named) = (directory, Self.line(text.dropFirst(start.count)))
    }

    /// The named path, unchecked.
    var place: [UInt8] { CanonicalPath.plain(absolute(named, in: directory)) }

    /// Finds the directory with objects, references, hooks and configuration.
    ///
    /// - Returns: Its path, absolute and without links, and its inode number: names may change meanwhile.
    /// - Throws: `.invalidDirectory` if it is none, does not name this directory, or has another owner.
    func repository() throws(GrantError) -> (path: [UInt8], inode: UInt64) {
        let found: (path: [UInt8], inode: UInt64, isMutual: Bool)
        do throws(Errno) {
            found = try look()
        } catch {
            throw refusal("its file .git names “\(VisibleText.of(named))”: \(error.description)")
        }
        guard found.isMutual else {
            throw refusal("“\(VisibleText.of(found.path))” is not its repository, or has another owner")
        }
        return (found.path, found.inode)
    }

    private func look() throws(Errno) -> (path: [UInt8], inode: UInt64, isMutual: Bool) {
        let own = try CanonicalPath.resolve(absolute(named, in: directory))
        // REPOSITORY/worktrees/NAME. A submodule has a repository of its own.
        let above = CanonicalPath.parent(of: own)
        let isWorktree = CanonicalPath.lastName(of: above).elementsEqual("worktrees".utf8)
        let repository = isWorktree ? CanonicalPath.parent(of: above) : own
        // Names may change meanwhile. All of these are of one directory.
        let opened = try FileDescriptor.open(repository, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
        let itself = try FileDescriptor.open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
        let status = try opened.status().st
        let inode = UInt64(status.st_ino)
        guard try status.st_uid == itself.status().st.st_uid else { return (repository, inode, false) }
        for name in ["objects", "refs"] { _ = try FileDescriptor.openBeneath(opened.number, name.utf8, O_RDONLY | O_DIRECTORY) }
        _ = try Self.contents(of: Array("HEAD".utf8), in: opened)
        var back: [UInt8]?
        if isWorktree {
            let place = Array("worktrees/".utf8) + CanonicalPath.lastName(of: own)
            let link = Self.line(try Self.contents(of: place + Array("/gitdir".utf8), in: opened)[...])
            // It names the file `.git`.
            back = CanonicalPath.parent(of: absolute(link, in: own))
        } else {
            let config = try Self.contents(of: Array("config".utf8), in: opened)
            back = Self.worktree(in: config).map { absolute($0, in: own) }
        }
        return (repository, inode, back.flatMap { try? CanonicalPath.resolve($0) } == directory)
    }

    private func absolute(_ path: [UInt8], in directory: [UInt8]) -> [UInt8] {
        path.first == UInt8(ascii: "/") ? path : CanonicalPath.join(directory, path)
    }

    /// Reads a small regular file, and follows no link.
    private static func contents(of name: [UInt8], in directory: borrowing FileDescriptor) throws(Errno) -> [UInt8] {
        let file = try FileDescriptor.openBeneath(directory.number, name, O_RDONLY | O_NONBLOCK)
        guard try file.status().st.st_mode & S_IFMT == S_IFREG else { throw Errno(EINVAL) }
        var buffer = [UInt8](repeating: 0, count: 65_536)
        let count = try Errno.check(read(file.number, &buffer, buffer.count))
        return Array(buffer.prefix(count))
    }

    private static func line(_ text: ArraySlice<UInt8>) -> [UInt8] {
        Array(text.prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") && $0 != 0 })
    }

    /// Returns the value of `core.worktree`, as `git submodule` writes it.
    private static func worktree(in config: [UInt8]) -> [UInt8]? {
        for line in config.split(separator: UInt8(ascii: "\n")) {
            let words = line.split(separator: UInt8(ascii: "="), maxSplits: 1)
            guard words.count == 2, trimmed(words[0]).elementsEqual("worktree".utf8) else { continue }
            return trimmed(words[1])
        }
        return nil
    }

    private static func trimmed(_ text: ArraySlice<UInt8>) -> [UInt8] {
        let isBlank = { (byte: UInt8) in byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }
        return Array(text.drop(while: isBlank).reversed().drop(while: isBlank).reversed())
    }

    private func refusal(_ cause: String) -> GrantError {
        GrantError(
            .invalidDirectory, "the repository of “\(VisibleText.of(directory))” is not granted", cause: cause,
            advice: "leave --worktree out, or grant the repository with --grant")
    }
}
