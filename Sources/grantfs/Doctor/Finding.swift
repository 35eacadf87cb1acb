/// What `grantfs doctor` found about one thing.
struct Finding: Sendable {
    enum Level: String, Sendable {
        case ok
        /// It works, with less than there could be.
        case note
        /// Something has to be done.
        case problem
    }

    /// What was looked at: one word for scripts, which stays.
    let check: String
    let level: Level
    /// What is so.
    let message: String
    /// What to do about it; nil when there is nothing to do.
    let advice: String?

    static func ok(_ check: String, _ message: String) -> Finding { Finding(check: check, level: .ok, message: message, advice: nil) }
    static func note(_ check: String, _ message: String, _ advice: String? = nil) -> Finding {
        Finding(check: check, level: .note, message: message, advice: advice)
    }
    static func problem(_ check: String, _ message: String, _ advice: String) -> Finding {
        Finding(check: check, level: .problem, message: message, advice: advice)
    }
}
