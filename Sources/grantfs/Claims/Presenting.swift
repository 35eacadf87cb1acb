import GrantControl
import GrantCoordinator
import GrantModel
import GrantSystem
import GrantViewFS

/// The presenters of one mount, beside what the table knows of them.
struct Presenting {
    /// Whom a round is for.
    enum Cause {
        case claim(ClaimID)
        case revocation(session: ControlSession, number: UInt64)
    }

    var table = PresenterTable()
    var live: [PresenterID: LivePresenter] = [:]
    /// Which presenter is behind each number of each session; nil while it is being looked for.
    var numbers: [UInt64: [UInt64: PresenterID?]] = [:]
    var rounds: [RoundID: Cause] = [:]
    /// Claims for writing that have ended, and have not been looked at.
    var written: [Written] = []
    /// What is to be said as soon as nobody holds the lock.
    var failures: [PresenterFailure] = []
    /// Somebody has registered since the mount began: he may be away for a moment, and is to miss nothing.
    var hasBegun = false
    /// How many were there when the last daemon died, and until when they are waited for (`Clock.monotonic`).
    var (expected, expectedUntil) = (0, Int64.max)
}

struct LivePresenter {
    let session: ControlSession
    let number: UInt64
    /// Of the item, on the host.
    var path: [UInt8]
    /// nil while no grant leads there.
    var target: ClaimTarget?
    /// The scopes by which it is reached.
    var scopes: Set<UInt32>
    /// Where it is looked for when its grant comes back.
    var grant: GrantID
    var below: [UInt8]

    /// It is to be looked for: its item was moved, or nothing leads to it.
    var isMisplaced: Bool { target?.path != path }
}

/// What a claim for writing was about.
struct Written {
    let parts: [ClaimService.ClaimPart]
    let pid: Int32
    let purpose: [UInt8]?
    /// What its claimant has said of moves: from where and to where.
    let moves: Set<[UInt8]>
}

/// A presenter whose answer is not waited for any longer, or that could not do what it was asked.
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
    /// Puts what is of other tables together.
    func failure(_ passed: PresenterTable.PassedOver, _ reason: PresenterFailure.Reason) -> PresenterFailure? {
        live[passed.presenter].map {
            PresenterFailure(grant: $0.grant, path: $0.path, peer: $0.session.peer, question: passed.kind, reason: reason)
        }
    }
}
