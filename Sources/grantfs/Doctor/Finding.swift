/// A finding of `grantfs doctor`.
struct Finding: Sendable {
    enum Level: String, Sendable {
        case ok
        /// It works, but not as well as it could.
        case note
        /// Something has to be done.
        case problem
    }

    /// The name of the check: one word for scripts, which never changes.
    let check: String
    let level: Level
    /// The result, for people.
    let message: String
    /// What to do about it, or nil if nothing.
    let advice: String?

    static func ok(_ check: String, _ message: String) -> Finding { Finding(check: check, level: .ok, message: message, advice: nil) }
    static func note(_ check: String, _ message: String, _ advice: String? = nil) -> Finding {
        Finding(check: check, level: .note, message: message, advice: advice)
    }
    static func problem(_ check: String, _ message: String, _ advice: String) -> Finding {
        Finding(check: check, level: .problem, message: message, advice: advice)
    }
}
