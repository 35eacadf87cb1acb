import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Offered scopes: a person has yet to allow them. See docs/decisions/offers.md.
extension ViewFS {
    /// Whether a person has yet to allow the scope.
    public func isOffered(_ scope: Scope) -> Bool { coordinator.isOffered(scope.id) }

    /// Opens an offered scope. Returns false, and does nothing, if it is not offered any more.
    ///
    /// Locking: the scope's `closing` lock. Called by a thread that serves no requests.
    public func admit(_ scope: Scope, readOnly: Bool) -> Bool {
        let isAdmitted = scope.closing.withLock { _ in
            guard coordinator.isOffered(scope.id) else { return false }
            scope.wantsReadOnly.store(readOnly, ordering: .releasing)
            records?.update(isReadOnly: readOnly, of: scope.id)
            guard coordinator.admit(scope.id, refusing: readOnly ? .readOnly : .none) else { return false }
            // A daemon that follows before this asks the store, and admits it again.
            records?.update(.none, of: scope.id)
            return true
        }
        guard isAdmitted else { return false }
        // The kernel may have cached that the directory has no access list.
        _ = session?.notifier.invalidateAttributes(NodeID(scope.rootNode))
        offers.resume(scope)
        return true
    }

    /// Serves a request in an offered scope.
    ///
    /// The directory itself is visible, as it was when it was offered, so that a listing of the directory above it asks nothing.
    /// Everything else leads to a question.
    @inline(never)
    func meetOffer(_ request: consuming Request, _ number: UInt32) {
        switch Opcode(rawValue: request.opcode) {
        case .getAttributes, .getExtendedAttributes:
            guard let scope = names.open.first(where: { $0.scope.id.rawValue == number })?.scope else {
                request.reply(error: EACCES)
                return
            }
            var attributes = attributes(scope.rootStatus)
            if request.wantsBirth {
                request.reply(attributes: attributes, birth: nil, timeout: 0)
            } else {
                request.reply(attributes: &attributes, timeout: 0)
            }
        case .getXattr: request.reply(error: ENODATA)
        case .listXattr: request.reply(error: EOPNOTSUPP)
        case nil: offers.park(request, number)
        }
    }

    /// Requests of linux/fuse.h, enum fuse_opcode.
    private enum Opcode: UInt32 {
        case getAttributes = 3
        case getXattr = 22
        case listXattr = 23
        /// STATX
        case getExtendedAttributes = 52
    }
}
