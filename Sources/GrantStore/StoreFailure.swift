import CGrantSQLite
import Glibc
import GrantModel
import GrantSystem

/// The errors of the store, each with advice. None of them ever rewrites the file.
enum StoreFailure {
    /// SQLITE_IOERR_SHORT_READ, which the header builds with an expression that Swift does not
    /// import.
    private static let shortRead = SQLITE_IOERR | 2 << 8

    /// Converts SQLite's result code to an error for people.
    static func error(result: Int32, handle: OpaquePointer?, path: String) -> GrantError {
        let words = handle.map { String(cString: sqlite3_errmsg($0)) } ?? String(cString: sqlite3_errstr(result))
        let number = handle.map { sqlite3_system_errno($0) } ?? 0
        if result & 0xFF == SQLITE_FULL || number == ENOSPC || number == EDQUOT { return full(path) }
        if result == shortRead { return damaged(path, words) }
        if isExhaustion(result, number) { return exhausted(path, number == 0 ? words : String(cString: strerror(number))) }
        switch result & 0xFF {
        case SQLITE_CORRUPT, SQLITE_NOTADB, SQLITE_ERROR, SQLITE_SCHEMA, SQLITE_MISMATCH, SQLITE_CONSTRAINT:
            return damaged(path, words)
        case SQLITE_BUSY, SQLITE_LOCKED:
            return GrantError(.storeUnavailable, "the store \(path) is busy", cause: words, advice: "try again")
        case SQLITE_READONLY, SQLITE_PERM, SQLITE_AUTH:
            return GrantError(.storeUnavailable, "the store \(path) cannot be written", cause: words)
        default:
            let cause = number == 0 ? words : "\(words): \(String(cString: strerror(number)))"
            return GrantError(.storeUnavailable, "the store \(path) cannot be used", cause: cause)
        }
    }

    /// Whether SQLite failed for lack of memory or descriptors.
    ///
    /// `number`: the errno that it kept from an open, read or write.
    private static func isExhaustion(_ result: Int32, _ number: Int32) -> Bool {
        switch result & 0xFF {
        case SQLITE_NOMEM: return true
        case SQLITE_IOERR: return result == ioErrorNoMemory || Errno(number).isExhaustion
        // The errno may be of another file, so test whether there are descriptors.
        case SQLITE_CANTOPEN: return Errno(number).isExhaustion || hasNoDescriptors
        default: return false
        }
    }

    /// SQLITE_IOERR_NOMEM, as `shortRead`.
    private static let ioErrorNoMemory = SQLITE_IOERR | 12 << 8

    private static var hasNoDescriptors: Bool {
        let tried = dup(STDERR_FILENO)
        if tried >= 0 { close(tried) }
        return tried < 0 && Errno(errno).isExhaustion
    }

    /// The store itself is intact.
    static func exhausted(_ path: String, _ cause: String) -> GrantError {
        GrantError(.exhausted, "the store \(path) cannot be used now", cause: cause, advice: "try again")
    }

    /// Converts the failure of a call on one of its files: exhaustion, or an unusable store.
    static func failed(_ path: String, _ error: Errno, _ cause: String? = nil) -> GrantError {
        error.isExhaustion ? exhausted(path, cause ?? error.description) : unavailable(path, cause ?? error.description)
    }

    static func damaged(_ path: String, _ cause: String) -> GrantError {
        GrantError(
            .storeDamaged, "the store \(path) is damaged", cause: cause,
            advice: "nothing was changed: restore a backup, or move the store away and grant again")
    }

    static func newer(_ path: String, version: Int64) -> GrantError {
        GrantError(
            .storeNewer, "the store \(path) was written by a newer grantfs", cause: "its version is \(version)",
            advice: "use that version, and mount the views again")
    }

    static func full(_ path: String) -> GrantError {
        GrantError(.storeFull, "the store \(path) cannot be written", cause: "no space left", advice: "make room and try again")
    }

    static func missing(_ directory: String) -> GrantError {
        GrantError(.notFound, "there is no store in \(directory)", advice: "grantfs grant makes one, or choose another with --store")
    }

    static func unavailable(_ directory: String, _ cause: String, advice: String? = nil) -> GrantError {
        GrantError(.storeUnavailable, "the store \(directory) cannot be used", cause: cause, advice: advice)
    }

    static func noGrant(_ id: GrantID) -> GrantError {
        GrantError(.notFound, "there is no grant \(id)")
    }

    static func nameTaken(_ name: GrantName, _ view: ViewName) -> GrantError {
        GrantError(
            .alreadyExists, "the view “\(view)” has a grant named “\(name)” already",
            advice: "choose another with --name, or remove that one")
    }
}
