import GrantSystem

/// Files that a program holds out for another one to take: by drag and drop, or copy and paste.
///
/// The files are held by descriptors, so that what is taken is what was held out.
final class FileTransfers: Sendable {
    struct Transfer: Sendable {
        let key: String
        let owner: Caller
        let isWritable: Bool
        let endsWhenTaken: Bool
        fileprivate(set) var files: [Documents.Addition] = []
    }

    private static let mostOfOne = 64
    private static let mostFiles = 4096

    private let transfers = Lock<[String: Transfer]>([:])

    private static let unknown = PortalError(.accessDenied, "Invalid transfer")

    func start(by owner: Caller, isWritable: Bool, endsWhenTaken: Bool) throws(PortalError) -> String {
        try transfers.withLock { (transfers: inout [String: Transfer]) throws(PortalError) in
            guard transfers.values.count(where: { $0.owner.name == owner.name }) < Self.mostOfOne else {
                throw PortalError(.failed, "Too many transfers")
            }
            // Whoever knows it may take the files.
            let key = String(UInt64.random(in: 0...UInt64.max))
            transfers[key] = Transfer(key: key, owner: owner, isWritable: isWritable, endsWhenTaken: endsWhenTaken)
            return key
        }
    }

    /// `.accessDenied` for a key that is unknown, or somebody else's when an owner is asked for.
    func transfer(_ key: String, of owner: String? = nil) throws(PortalError) -> Transfer {
        guard let transfer = transfers.withLock({ $0[key] }), owner == nil || transfer.owner.name == owner else { throw Self.unknown }
        return transfer
    }

    func add(_ files: [Documents.Addition], to key: String) throws(PortalError) {
        try transfers.withLock { (transfers: inout [String: Transfer]) throws(PortalError) in
            guard let count = transfers[key]?.files.count else { throw Self.unknown }
            guard count + files.count <= Self.mostFiles else { throw PortalError(.failed, "Too many files") }
            transfers[key]?.files += files
        }
    }

    /// False when it had ended already.
    func end(_ key: String) -> Bool { transfers.withLock { $0.removeValue(forKey: key) != nil } }

    /// The program is gone, and with it whoever could be told.
    func endAll(of owner: String) { transfers.withLock { $0 = $0.filter { $0.value.owner.name != owner } } }
}
