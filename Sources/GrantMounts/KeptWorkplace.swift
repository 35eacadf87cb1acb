import Glibc
import GrantModel
import GrantSystem

/// The end of a workplace: what programs saved in it is kept for the document's owner, beside the document.
enum KeptWorkplace {
    /// Removes a workplace without saved content. Another is renamed to `DOCUMENT.kept-` and 8 digits.
    ///
    /// - Parameter document: the document's name in `parent`, or empty if it is unknown.
    /// - Returns: the new name, or nil if nothing is kept.
    /// - Throws: ESTALE if the name is another file, which stays.
    static func end(
        _ directory: borrowing FileDescriptor, named name: [UInt8], in parent: borrowing FileDescriptor, document: [UInt8]
    ) throws(Errno) -> [UInt8]? {
        let original = document.isEmpty ? nil : (try? DirectoryEntry.status(parent.number, document)).map { FileKey($0) }
        if isEmpty(directory, besides: original) {
            try TreeRemoval.remove(directory, named: name, in: parent, asOwner: true)
            return nil
        }
        return try keep(directory, named: name, in: parent, document: document)
    }

    /// Renames a workplace, even if it is not empty. Returns the new name.
    static func keep(
        _ directory: borrowing FileDescriptor, named name: [UInt8], in parent: borrowing FileDescriptor, document: [UInt8]
    ) throws(Errno) -> [UInt8] {
        guard FileKey(try DirectoryEntry.status(parent.number, name)) == FileKey(try directory.status()) else { throw Errno(ESTALE) }
        showHidden(in: directory, document: document)
        while true {
            let digits = Hexadecimal.text(GrantID.random().high).prefix(8)
            let kept = shortened(document.isEmpty ? Array("document".utf8) : document) + Array(".kept-\(digits)".utf8)
            do throws(Errno) {
                try DirectoryEntry.rename(parent.number, name, to: kept)
                return kept
            } catch {
                if error != Errno(EEXIST) { throw error }
            }
        }
    }

    /// Whether no regular file in the tree has content of its own. A second name of the document has none. A tree that cannot be read to
    /// its end counts as content.
    private static func isEmpty(_ directory: borrowing FileDescriptor, besides document: FileKey?, depth: Int = 0) -> Bool {
        var names: [[UInt8]] = []
        guard depth < deepest, let listed = try? directory.reopened(O_RDONLY | O_DIRECTORY),
            let looked = try? listed.forEachEntry(limit: mostEntries, { _, _, name in names.append(Array(name)) }), looked < mostEntries
        else { return false }
        var directories: [[UInt8]] = []
        for name in names {
            guard let status = try? DirectoryEntry.status(listed.number, name) else { return false }
            switch status.st.st_mode & S_IFMT {
            case S_IFREG: if status.st.st_size > 0, FileKey(status) != document { return false }
            case S_IFDIR: directories.append(name)
            default: break
            }
        }
        for name in directories {
            guard let below = try? FileDescriptor.openBeneath(listed.number, name, OpenFlags.path | O_DIRECTORY | O_NOFOLLOW),
                isEmpty(below, besides: document, depth: depth + 1)
            else { return false }
        }
        return true
    }

    private static let deepest = 32
    private static let mostEntries = 100_000

    /// Gives a new document that was being written, or was on its way to its place, a name that its owner recognises.
    private static func showHidden(in directory: borrowing FileDescriptor, document: [UInt8]) {
        var hidden: [[UInt8]] = []
        guard let listed = try? directory.reopened(O_RDONLY | O_DIRECTORY) else { return }
        _ = try? listed.forEachEntry(limit: mostEntries) { _, _, name in
            if Array(name).starts(with: DocumentWorkplace.prefix.utf8) { hidden.append(Array(name)) }
        }
        for name in hidden {
            let own = document.isEmpty ? Array("document".utf8) : document
            for number in 0...hidden.count {
                let shown = number == 0 ? own : shortened(own) + Array(".new-\(number)".utf8)
                if (try? DirectoryEntry.rename(listed.number, name, to: shown)) != nil { break }
            }
        }
    }

    /// At most 100 bytes of a name, cut between two characters of UTF-8.
    private static func shortened(_ name: [UInt8]) -> [UInt8] {
        var end = min(name.count, 100)
        while end < name.count, end > 97, name[end] & 0xC0 == 0x80 { end -= 1 }
        return Array(name[..<end])
    }
}
