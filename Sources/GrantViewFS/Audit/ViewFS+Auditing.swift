import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantModel
import GrantSystem
import GrantViewTree

/// The object of a change: an open file, or a name in an open directory.
enum AuditedPlace {
    case file(Int32)
    case entry(Int32, UnsafePointer<CChar>)

    /// Its path on the host. It is nil if the kernel does not know it.
    var path: [UInt8]? {
        switch self {
        case .file(let descriptor): return AuditedPlace.path(of: descriptor)
        case .entry(let directory, let name):
            guard var path = AuditedPlace.path(of: directory) else { return nil }
            if path.last != UInt8(ascii: "/") { path.append(UInt8(ascii: "/")) }
            return path + UnsafeRawBufferPointer(start: name, count: strlen(name))
        }
    }

    static func path(of descriptor: Int32) -> [UInt8]? {
        withUnsafeTemporaryAllocation(of: CChar.self, capacity: 4096) { buffer in
            let count = clinux_descriptor_path(descriptor, buffer.baseAddress!, buffer.count)
            return count > 0 ? buffer.prefix(count).map { UInt8(bitPattern: $0) } : nil
        }
    }
}

// Without auditing, all of this costs one load of `audit`.
extension ViewFS {
    /// Records an open, if the mount has an audit trail. Returns the error to reply, or 0.
    ///
    /// The error is EACCES if the record could not be written, as for every failure of the store.
    /// `descriptor`: the opened file, or O_PATH of a file that was not opened.
    @inline(__always)
    func audit(_ request: borrowing Request, _ node: NodePointer, _ descriptor: Int32, error: Int32) -> Int32 {
        audit == nil ? 0 : recordOpening(request, node.pointee.scope, descriptor, error)
    }

    /// Never inlined: it allocates and retains, and an open that is not audited does not.
    @inline(never)
    private func recordOpening(_ request: borrowing Request, _ scope: UInt32, _ descriptor: Int32, _ error: Int32) -> Int32 {
        guard let audit, let call = audit.call(request) else { return 0 }
        let record = AuditRecord(call, by: request.caller, scope: scope, path: AuditedPlace.path(of: descriptor), error: error)
        return audit.record(record) == nil ? EACCES : 0
    }

    /// Makes a change. With auditing, records it before and its outcome afterwards.
    ///
    /// Call it inside the scope. Returns the result of `change`, or a negative error number. A
    /// change that cannot be recorded is not made, nor is one whose grant was withdrawn meanwhile.
    @inline(__always)
    func audited(
        _ request: borrowing Request, _ node: NodePointer, _ place: AuditedPlace, to newPlace: AuditedPlace? = nil,
        detail: @autoclosure () -> String = "", _ change: () -> Int32
    ) -> Int32 {
        audit == nil ? change() : recordThenChange(request, node, place, newPlace, detail, change)
    }

    @inline(never)
    private func recordThenChange(
        _ request: borrowing Request, _ node: NodePointer, _ place: AuditedPlace, _ newPlace: AuditedPlace?, _ detail: () -> String,
        _ change: () -> Int32
    ) -> Int32 {
        guard let audit, let call = audit.call(request) else { return change() }
        let scope = node.pointee.scope
        var record = AuditRecord(call, by: request.caller, scope: scope, path: place.path, error: nil)
        record.newPath = newPlace?.path
        record.detail = detail()
        if record.path == nil, case .entry(_, let name) = place {
            record.detail = "“\(String(cString: name))” in a directory whose path cannot be told " + record.detail
        }
        guard let number = audit.record(record) else { return -EACCES }
        // A revoker closes the gate and then lists the operations inside: one of the two sees the
        // other.
        let refused = coordinator.gate(ScopeID(rawValue: scope)).pointee.refused.subtracting(.claimed)
        let refusal = refusal(by: node.pointee.containment, .write)
        let result =
            refused.contains(.read)
            ? -EACCES : refused.contains(.write) ? -EROFS : refusal.map { $0 == .readOnly ? -EROFS : -EACCES } ?? change()
        audit.end(number, error: result < 0 ? Errno.number(of: result) : 0)
        return result
    }

    /// Does the same as `pendingCall` by node, with the node's descriptor.
    func pendingCall(of descriptor: Int32, _ request: borrowing Request, scope: UInt32) -> AuditTrail.PendingCall? {
        guard let call = audit?.call(request) else { return nil }
        return AuditTrail.PendingCall(call: call, caller: request.caller, scope: scope, path: AuditedPlace.path(of: descriptor))
    }

    /// The audited part of a request that is about to be parked. Returns nil if it is not audited.
    ///
    /// Call it inside the scope.
    func pendingCall(_ request: borrowing Request, _ id: UInt64, scope: UInt32) -> AuditTrail.PendingCall? {
        guard let call = audit?.call(request) else { return nil }
        var path: [UInt8]?
        if let node = tree.nodes.find(id) {
            let descriptor = tree.pin(node)
            if descriptor >= 0 { path = AuditedPlace.path(of: descriptor) }
            tree.unpin(id, node)
        }
        return AuditTrail.PendingCall(call: call, caller: request.caller, scope: scope, path: path)
    }

    /// Records a refusal by a gate. It has no path, because nothing was looked up.
    @inline(never)
    func recordRefusal(_ request: borrowing Request, scope: UInt32, error: Int32) {
        guard let audit, let call = audit.call(request) else { return }
        _ = audit.record(AuditRecord(call, by: request.caller, scope: scope, error: error))
    }
}
