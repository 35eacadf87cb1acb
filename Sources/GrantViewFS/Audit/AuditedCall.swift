import GrantFUSE
import GrantModel

/// What is written down of what is done through a mount (`-o audit`): openings, and everything that changes more than the data of an open file. The words are the
/// log's.
public enum AuditedAct: Sendable {
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
    var access: OpenAccess?
    /// An opening that may make the file.
    var mayCreate = false

    /// What it counts as: one of these is enough for it to be written down.
    var kinds: AuditKinds {
        switch act {
        case .opened:
            switch access {
            case .write: mayCreate ? [.write, .create] : .write
            case .readWrite: mayCreate ? [.read, .write, .create] : [.read, .write]
            case .read, nil: mayCreate ? [.read, .create] : .read
            }
        case .truncated: .write
        case .directoryMade, .linked, .symlinkMade, .nodeMade: .create
        case .unlinked, .directoryRemoved: .remove
        case .renamed: .rename
        case .modeSet, .ownerSet, .timesSet, .attributeSet, .attributeRemoved, .flagsSet: .attributes
        }
    }
}

extension AuditedCall {
    /// nil for what is not written down: reading, writing, locking, and what the kernel asks of its own accord.
    init?(_ request: borrowing Request) {
        switch request.opcode {
        // OPEN, OPENDIR, CREATE, TMPFILE
        case 14, 27, 35, 51:
            let access = OpenAccess(flags: Int32(bitPattern: request.word(at: 0)))
            self.init(act: .opened, access: access, mayCreate: request.opcode == 35 || request.opcode == 51)
        case 4:
            guard let act = AuditedCall.act(of: AttributeChanges(rawValue: Int32(bitPattern: request.word(at: 0)))) else { return nil }
            self.init(act: act)
        case 6: self.init(act: .symlinkMade)
        case 8: self.init(act: .nodeMade)
        case 9: self.init(act: .directoryMade)
        case 10: self.init(act: .unlinked)
        case 11: self.init(act: .directoryRemoved)
        case 12, 45: self.init(act: .renamed)
        case 13: self.init(act: .linked)
        case 21: self.init(act: .attributeSet)
        case 24: self.init(act: .attributeRemoved)
        // struct fuse_ioctl_in, in_size: what sets flags brings them.
        case 39 where request.word(at: 24) > 0: self.init(act: .flagsSet)
        default: return nil
        }
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
