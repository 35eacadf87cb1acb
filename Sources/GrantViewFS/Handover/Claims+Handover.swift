import GrantCoordinator
import Glibc
import GrantSystem

// Hands claims over to the next daemon: their effect on operations, and the files held open for
// claimants and presenters.
extension ViewFS {
    /// Whether no claim is in transition.
    ///
    /// A claim is in transition while it begins to bind, or while invalidations run after its end.
    public var areClaimsSettled: Bool { claimInvalidator.ending.load(ordering: .acquiring) == 0 && waiting.settledHolds != nil }

    /// Writes the claims that bind.
    ///
    /// - Throws: EAGAIN if one is in transition.
    public func handOverClaims(to state: inout HandoverWriter) throws(Errno) {
        guard let holds = waiting.settledHolds else { throw Errno(EAGAIN) }
        state.put(UInt64(truncatingIfNeeded: holds.count))
        for (id, hold) in holds {
            state.put(id)
            hold.handOver(to: &state)
        }
    }

    /// Restores the claims. Call it after the scopes, and before requests are served.
    public func takeOverClaims(from state: inout HandoverReader) throws(Errno) {
        for _ in 0..<(try state.takeCount(ofAtLeast: 16)) {
            let id: UInt64 = try state.take()
            waiting.begin(id, try ClaimWaitQueue.Hold(from: &state))
        }
    }

    /// How a claim binds, if it does, for crash recovery.
    ///
    /// Locking: takes a lock of rank 2 for a moment.
    public func binding(ofClaim id: UInt64) -> [UInt8] {
        var state = HandoverWriter()
        let hold = waiting.hold(id)
        state.put(flag: hold != nil)
        hold?.handOver(to: &state)
        return state.bytes
    }

    /// Restores a crashed daemon's claim from `binding`, and returns its scopes that are still
    /// open.
    ///
    /// Call it before requests are served.
    public func restoreClaim(_ id: UInt64, from state: inout HandoverReader) throws(Errno) -> Set<UInt32> {
        guard try state.takeFlag() else { return [] }
        var hold = try ClaimWaitQueue.Hold(from: &state)
        hold.scopes.formIntersection(names.open.map(\.scope.id.rawValue))
        hold.whole = hold.whole.filter { hold.scopes.contains($0.key) }
        if !hold.scopes.isEmpty { waiting.begin(id, hold) }
        return hold.scopes
    }
}

extension ClaimWaitQueue.Hold {
    fileprivate func handOver(to state: inout HandoverWriter) {
        state.put(process)
        state.put(patience ?? -1)
        state.put(numbers: scopes)
        state.put(accesses: accesses)
        state.put(UInt64(truncatingIfNeeded: whole.count))
        for (scope, uses) in whole {
            state.put(scope)
            state.put(bytes: uses.map(\.rawValue))
        }
    }

    fileprivate init(from state: inout HandoverReader) throws(Errno) {
        let (process, patience): (Int32, Int64) = (try state.take(), try state.take())
        self.init(
            process: process, patience: patience < 0 ? nil : patience, scopes: try state.takeNumbers(),
            accesses: try state.takeAccesses(), whole: [:])
        for _ in 0..<(try state.takeCount(ofAtLeast: 8)) {
            let scope: UInt32 = try state.take()
            whole[scope] = try state.takeBytes().compactMap { ItemUse(rawValue: $0) }
        }
        letsReadsPass = false
    }
}

extension ClaimTarget {
    public func handOver(to state: inout HandoverWriter) {
        state.put(bytes: path)
        state.put(descriptor: directory.number)
        state.put(optional: name)
        state.put(descriptor: file?.descriptor.number ?? -1)
        state.put(flag: crossesMounts)
    }

    public convenience init(from state: inout HandoverReader) throws(Errno) {
        let (path, directory, name, file) = (
            try state.takeBytes(), try state.takeDescriptor(), try state.takeOptional(), try state.takeDescriptor()
        )
        let crossesMounts = try state.takeFlag()
        guard directory >= 0 else { throw Errno(EBADMSG) }
        self.init(
            path: path, directory: FileDescriptor(owning: directory), name: name, file: file >= 0 ? FileDescriptor(owning: file) : nil,
            crossesMounts: crossesMounts)
    }
}

extension HandoverWriter {
    public mutating func put(optional bytes: [UInt8]?) {
        put(flag: bytes != nil)
        if let bytes { put(bytes: bytes) }
    }

    public mutating func put(numbers: Set<UInt32>) {
        put(UInt64(truncatingIfNeeded: numbers.count))
        for number in numbers { put(number) }
    }

    public mutating func put(item: ClaimedItem) {
        put(ids: item.identities)
        put(flag: item.place != nil)
        if let place = item.place {
            put(ids: [place.directory])
            put(bytes: place.name)
        }
        put(ids: item.ancestors)
    }

    public mutating func put(accesses: [ItemAccess]) {
        put(UInt64(truncatingIfNeeded: accesses.count))
        for access in accesses {
            put(item: access.item)
            put(access.use.rawValue)
        }
    }

    private mutating func put(ids: [ItemID]) {
        put(UInt64(truncatingIfNeeded: ids.count))
        for id in ids {
            put(id.first)
            put(id.second)
            put(id.third)
        }
    }
}

extension HandoverReader {
    public mutating func takeOptional() throws(Errno) -> [UInt8]? { try takeFlag() ? try takeBytes() : nil }

    public mutating func takeNumbers() throws(Errno) -> Set<UInt32> {
        var numbers = Set<UInt32>()
        for _ in 0..<(try takeCount(ofAtLeast: 4)) { numbers.insert(try take()) }
        return numbers
    }

    public mutating func takeItem() throws(Errno) -> ClaimedItem {
        let identities = try takeIDs()
        var place: ItemPlace?
        if try takeFlag() {
            guard let directory = try takeIDs().first else { throw Errno(EBADMSG) }
            place = ItemPlace(directory: directory, name: try takeBytes())
        }
        return ClaimedItem(identities: identities, place: place, ancestors: try takeIDs())
    }

    public mutating func takeAccesses() throws(Errno) -> [ItemAccess] {
        var accesses: [ItemAccess] = []
        for _ in 0..<(try takeCount(ofAtLeast: 17)) {
            let item = try takeItem()
            guard let use = ItemUse(rawValue: try take()) else { throw Errno(EBADMSG) }
            accesses.append(ItemAccess(item, use))
        }
        return accesses
    }

    private mutating func takeIDs() throws(Errno) -> [ItemID] {
        var ids: [ItemID] = []
        for _ in 0..<(try takeCount(ofAtLeast: 24)) { ids.append(ItemID(try take(), try take(), try take())) }
        return ids
    }
}
