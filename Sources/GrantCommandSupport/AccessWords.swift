import Glibc
import GrantCommandLine
import GrantModel

extension ParsedArguments {
    /// Returns the access of `--read-only` or `--access`. Without either it returns nil. Throws
    /// `.usage` if they contradict each other.
    package func access() throws(GrantError) -> Access? {
        var result: Access? = has("read-only") ? .readOnly : nil
        for text in try texts("access") {
            guard let access = Access(word: text) else {
                throw GrantError(.usage, "invalid access “\(text)”", advice: "use read-write or read-only")
            }
            if let result, result != access {
                throw GrantError(.usage, "\(command): the access cannot be both \(result.rawValue) and \(access.rawValue)")
            }
            result = access
        }
        return result
    }

    /// Returns a path without its mark `:ro` or `:rw`, and the access: the mark's, else that of the options, else read-write. Without
    /// `isLiteral`, a path that exists with the mark is taken as it is.
    ///
    /// It throws `.ambiguous` if both exist, because another user may have made the name with the
    /// mark. It throws `.usage` if the mark and the options contradict each other.
    package func marked(_ word: [UInt8], isLiteral: Bool = false) throws(GrantError) -> (path: [UInt8], access: Access) {
        let access = try access()
        let marks: [(ending: String, access: Access)] = [(":ro", .readOnly), (":rw", .readWrite)]
        guard let mark = marks.first(where: { word.suffix(3).elementsEqual($0.ending.utf8) }) else { return (word, access ?? .readWrite) }
        let path = Array(word.dropLast(3))
        if !isLiteral, ParsedArguments.exists(word) {
            guard path.isEmpty || !ParsedArguments.exists(path) else {
                throw GrantError(
                    .ambiguous, "“\(String(decoding: word, as: UTF8.self))” could be two directories",
                    cause: "with and without “\(mark.ending)”, both exist",
                    advice: "end the name with a slash for the one, or use --access \(mark.access.rawValue) for the other")
            }
            return (word, access ?? .readWrite)
        }
        if let access, access != mark.access {
            throw GrantError(
                .usage,
                "\(command): the access of “\(String(decoding: path, as: UTF8.self))” cannot be both \(mark.access.rawValue) and "
                    + access.rawValue)
        }
        return (path, mark.access)
    }

    private static func exists(_ path: [UInt8]) -> Bool {
        var status = stat()
        return (path + [0]).withUnsafeBytes { bytes in
            lstat(bytes.baseAddress!.assumingMemoryBound(to: CChar.self), &status) == 0
        }
    }
}
