/// A finding of `grantfs doctor`.
package struct Finding: Sendable {
    package enum Level: String, Sendable {
        case ok
        /// It works, but not as well as it could.
        case note
        /// Something has to be done.
        case problem
    }

    /// The name of the check: one word for scripts, which never changes.
    package let check: String
    package let level: Level
    /// The result, for people.
    package let message: String
    /// What to do about it, or nil if nothing.
    package let advice: String?

    package static func ok(_ check: String, _ message: String) -> Finding {
        Finding(check: check, level: .ok, message: message, advice: nil)
    }
    package static func note(_ check: String, _ message: String, _ advice: String? = nil) -> Finding {
        Finding(check: check, level: .note, message: message, advice: advice)
    }
    package static func problem(_ check: String, _ message: String, _ advice: String) -> Finding {
        Finding(check: check, level: .problem, message: message, advice: advice)
    }

    package var json: JSON {
        .object([
            ("check", .string(check)), ("level", .string(level.rawValue)), ("message", .string(message)),
            ("advice", advice.map { .string($0) } ?? .null),
        ])
    }
}

extension Finding {
    /// Reads `json`. It is nil if that is something else.
    package init?(_ json: JSON) {
        guard let check = json.member("check")?.stringValue, let level = json.member("level")?.stringValue.flatMap(Level.init),
            let message = json.member("message")?.stringValue
        else { return nil }
        self.init(check: check, level: level, message: message, advice: json.member("advice")?.stringValue)
    }
}
