import GrantFUSE
import GrantModel

/// An audited action (`-o audit`): an open, or a change of more than an open file's data.
///
/// The names are those of the log.
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

/// A request that is recorded.
struct AuditedCall {
    let act: AuditedAct
    /// The access of an open.
    var access: OpenAccess?
    /// Whether the open may create the file.
    var mayCreate = false

    /// The kinds that the call counts as. One of them must be selected.
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
    /// The result is nil for requests that are not recorded.
    ///
    /// These are reads, writes, locks, and requests that the kernel sends by itself.
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
        // struct fuse_ioctl_in, in_size: a call that sets flags carries them.
        case 39 where request.word(at: 24) > 0: self.init(act: .flagsSet)
        default: return nil
        }
    }

    /// The most significant of several changed attributes.
    ///
    /// The record names all of them. Returns nil for times that the kernel writes back.
    static func act(of changes: AttributeChanges) -> AuditedAct? {
        if changes.contains(.size) { return .truncated }
        // Also chown(2) without an owner or group, which clears set-id bits.
        if changes.changesOwner { return .ownerSet }
        if changes.contains(.mode) { return .modeSet }
        return changes.subtracting(.changeTime) == .modificationTime && changes.contains(.changeTime) ? nil : .timesSet
    }
}
