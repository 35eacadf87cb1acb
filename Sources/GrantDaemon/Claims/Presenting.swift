import GrantControl
import GrantCoordinator
import GrantModel
import GrantSystem
import GrantViewFS

/// The presenters of one mount, beside the table's own data.
struct Presenting {
    /// What a round of questions is for.
    enum Cause {
        case claim(ClaimID)
        case revocation(session: ControlSession, number: UInt64)
    }

    var table = PresenterTable()
    var live: [PresenterID: LivePresenter] = [:]
    /// By session and the client's number: the presenter, or nil while it is being looked up.
    var numbers: [UInt64: [UInt64: PresenterID?]] = [:]
    var rounds: [RoundID: Cause] = [:]
    /// Ended writing claims whose items have not been checked yet.
    var written: [EndedWrite] = []
    /// Failures to be logged once the lock is released.
    var failures: [PresenterFailure] = []
    /// Whether any presenter has registered since the mount began: it may be away for a moment, and must not miss events.
    var hasBegun = false
    /// How many presenters there were when the previous daemon died, and until when to wait for
    /// them (`Clock.monotonic`).
    var (expected, expectedUntil) = (0, Int64.max)
}

struct LivePresenter {
    let session: ControlSession
    let number: UInt64
    /// The item's path on the host.
    var path: [UInt8]
    /// nil while no grant leads there.
    var target: ClaimTarget?
    /// The scopes that lead to it.
    var scopes: Set<UInt32>
    /// The grant and path by which it is looked up when the grant is opened again.
    var grant: GrantID
    var below: [UInt8]

    /// Whether it has to be looked up: its item was moved, or no scope leads to it.
    var needsLookup: Bool { target?.path != path }
}

/// The items of an ended writing claim.
struct EndedWrite {
    let parts: [ClaimService.ClaimPart]
    let pid: Int32
    let purpose: [UInt8]?
    /// The moves that its claimant has announced: from and to.
    let moves: Set<[UInt8]>
}

/// A presenter that did not answer in time, or could not do what it was asked.
struct PresenterFailure: Sendable {
    enum Reason: String, Sendable {
        case stopped = "it is stopped"
        case late = "it has not answered in time"
        case ended = "it has ended without an answer"
        case unable = "it says that it could not"
    }

    let grant: GrantID
    let path: [UInt8]
    let peer: Peer
    let question: PresenterQuestion
    var reason: Reason

    /// For people.
    var what: String {
        switch question {
        case .relinquishToReader: "make way for a reader"
        case .relinquishToWriter: "make way for a writer"
        case .save: "save"
        case .accommodateDeletion: "let it be deleted"
        case .revocation: "prepare for the revocation"
        }
    }
}

extension Presenting {
    /// Combines the data of several tables.
    func failure(_ passed: PresenterTable.PassedOver, _ reason: PresenterFailure.Reason) -> PresenterFailure? {
        live[passed.presenter].map {
            PresenterFailure(grant: $0.grant, path: $0.path, peer: $0.session.peer, question: passed.kind, reason: reason)
        }
    }
}
