import GrantControl
import GrantModel
import GrantStore
import GrantSystem

extension GrantAdministrator {
    /// A program waits for the answer whether it may use an offered directory.
    package struct OfferQuestion: Sendable {
        /// Ascending in a mount.
        package let number: UInt64
        package let grant: GrantID
        /// The thread that was first, as the daemon sees it.
        package let thread: Int32
    }

    /// Waits for questions of a mount after this number. Programs wait as long as this is called again and again, and are refused
    /// otherwise. Returns nil if the daemon does not answer.
    package static func questions(
        of mount: MountRecord, _ store: GrantStore, after last: UInt64, within milliseconds: UInt32
    ) -> [OfferQuestion]? {
        let request = ControlRequest.questions(after: last, timeoutMilliseconds: milliseconds)
        let answer = Daemons.ask(mount, request, of: store, deadline: Clock.deadline(seconds: 10))
        guard case .success(.questions(let found)) = answer else { return nil }
        return found.map { OfferQuestion(number: $0.number, grant: $0.grant, thread: $0.thread) }
    }
}
