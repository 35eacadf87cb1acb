import FUSEKit
import GrantModel

/// What is written down of what is done through a mount (`-o audit`): openings, and everything that changes more than the data of an open file. The words are the
/// log's.
public enum AuditedAct: String, Sendable, CaseIterable {
    case opened
    case unlinked
    case directoryMade
    case directoryRemoved
    case renamed
    case linked
    case symlinkMade
    case nodeMade
    case modeSet
    case ownerSet
    case truncated
    case timesSet
    case attributeSet
    case attributeRemoved
    case flagsSet
}

/// A request of which a record is kept.
struct AuditedCall {
    let act: AuditedAct
    /// What an opening is for.
    let access: OpenAccess?

    /// nil for what is not written down: reading, writing, locking, and what the kernel asks of its own accord.
    init?(_ request: borrowing Request) {
        var access: OpenAccess?
        switch request.opcode {
        // OPEN, OPENDIR, CREATE, TMPFILE
        case 14, 27, 35, 51:
            act = .opened
            access = OpenAccess(flags: Int32(bitPattern: request.firstWord))
        case 4:
            guard let act = AuditedCall.act(of: AttributeChanges(rawValue: Int32(bitPattern: request.firstWord))) else { return nil }
            self.act = act
        case 6: act = .symlinkMade
        case 8: act = .nodeMade
        case 9: act = .directoryMade
        case 10: act = .unlinked
        case 11: act = .directoryRemoved
        case 12, 45: act = .renamed
        case 13: act = .linked
        case 21: act = .attributeSet
        case 24: act = .attributeRemoved
        // An ioctl(2) that changes brings something: struct fuse_ioctl_in, in_size.
        case 39: act = .flagsSet
        default: return nil
        }
        self.access = access
    }

    /// What a change of several attributes counts as: the weightiest. The record names all. nil for times that the kernel's write-back cache brings.
    static func act(of changes: AttributeChanges) -> AuditedAct? {
        if changes.contains(.size) { return .truncated }
        // Also chown(2) that names nobody, which clears set-id bits.
        if changes.changesOwner { return .ownerSet }
        if changes.contains(.mode) { return .modeSet }
        return changes.subtracting(.changeTime) == .modificationTime && changes.contains(.changeTime) ? nil : .timesSet
    }
}
