import GrantCommandSupport
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantProxy
import GrantSystem

/// The file for the audit log of `grantfs run --audit`: what the program has opened and changed through the view.
final class SandboxAudit {
    private let file: FileDescriptor
    private let shown: String
    /// The number of the last log entry before the program.
    private let last: Int64

    /// Opens the file, which stays empty until the program has ended. It throws `.usage` if the
    /// program could write to it, or `.system` if it cannot be made.
    ///
    /// - Parameter granted: the directories that the program sees, canonical.
    init(_ word: [UInt8], granted: [[UInt8]], _ store: GrantStore) throws(GrantError) {
        shown = String(decoding: word, as: UTF8.self)
        last = try store.lastLogNumber()
        file = try SandboxAudit.open(word, granted)
    }

    private static func open(_ word: [UInt8], _ granted: [[UInt8]]) throws(GrantError) -> FileDescriptor {
        let message = "the audit cannot be in “\(String(decoding: word, as: UTF8.self))”"
        let place: [UInt8]
        do throws(Errno) {
            place = try CanonicalPath.resolveAbove(word)
        } catch {
            throw GrantError(.system, message, cause: error.description)
        }
        if granted.contains(where: { MountTable.path(place, isAtOrBelow: $0) }) {
            throw GrantError(.usage, message, cause: "the program is granted the directory and could change it")
        }
        do throws(Errno) {
            // Without links also above: another user may put one there since it was resolved.
            let above = try FileDescriptor.openWithoutLinks(CanonicalPath.parent(of: place))
            let file = try FileDescriptor.openAt(
                above.number, CanonicalPath.lastName(of: place), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK, mode: 0o600)
            guard try file.status().st.st_mode & S_IFMT == S_IFREG else { throw Errno(EINVAL) }
            if ftruncate(file.number, 0) != 0 { throw Errno(errno) }
            return file
        } catch {
            throw GrantError(.system, message, cause: error.description)
        }
    }

    /// Writes the log entries of the view since then, one JSON object a line, as `grantfs log --json` prints them. `refused`: refused
    /// hosts, which are not in the log.
    func write(_ view: ViewName, _ store: GrantStore, refused: [Refusal]) throws(GrantError) {
        var text = ""
        try store.readLog(after: last) { entry in
            // The refused hosts follow, in the form of this file.
            if entry.view == view, ![.wanted, .hostRefused].contains(entry.event) { text += JSON.object(LogText.json(entry)).text + "\n" }
        }
        for refusal in refused {
            let members: [(String, JSON)] = [
                ("event", .string("host-refused")), ("view", .string(view.description)), ("host", .string(refusal.target)),
                ("detail", .string(refusal.reason)), ("count", .integer(Int64(refusal.count))),
            ]
            text += JSON.object(members).text + "\n"
        }
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(file.number, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else {
                throw GrantError(
                    .system, "the audit in “\(shown)” is not complete", cause: Errno(errno).description, advice: "grantfs log has all of it"
                )
            }
            rest = rest.dropFirst(count)
        }
    }
}
