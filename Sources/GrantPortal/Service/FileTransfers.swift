import Glibc
import GrantSystem

/// Files that a program holds out for another one to take: by drag and drop, or copy and paste.
///
/// The files are held by descriptors, so that the receiver gets exactly the offered files.
final class FileTransfers: Sendable {
    struct Transfer: Sendable {
        let key: String
        let owner: Caller
        let isWritable: Bool
        let endsWhenTaken: Bool
        fileprivate(set) var files: [Documents.Addition] = []
    }

    /// Of one connection, of one application with all its connections, and of all together.
    private static let (mostOfOne, mostOfAnApp, most) = (64, 64, 1024)
    /// Files held out in one transfer, by one application, by all applications, and by the owner's programs.
    private static let (mostFiles, mostFilesOfAnApp) = (DescriptorShare.most(4096), DescriptorShare.most(1024))
    private static let (mostFilesOfApps, mostFilesOfOwner) = (DescriptorShare.most(4096), DescriptorShare.most(8192))

    private let transfers = Lock<[String: Transfer]>([:])

    private static let unknown = PortalError(.accessDenied, "Invalid transfer")

    func start(by owner: Caller, isWritable: Bool, endsWhenTaken: Bool) throws(PortalError) -> String {
        try transfers.withLock { (transfers: inout [String: Transfer]) throws(PortalError) in
            let ofOne = transfers.values.count { $0.owner.name == owner.name }
            let ofApp = owner.isOwner ? 0 : transfers.values.count { $0.owner.app == owner.app }
            // Applications leave half of them to the owner.
            let all = owner.isOwner ? transfers.count : transfers.values.count { !$0.owner.isOwner } * 2
            guard ofOne < Self.mostOfOne, ofApp < Self.mostOfAnApp, all < Self.most else {
                throw PortalError(.limitsExceeded, "Too many transfers")
            }
            // The key is all that is needed to take the files, so it cannot be guessed.
            let key = String(UInt64.random(in: 0...UInt64.max))
            transfers[key] = Transfer(key: key, owner: owner, isWritable: isWritable, endsWhenTaken: endsWhenTaken)
            return key
        }
    }

    /// Throws `.accessDenied` when the key is unknown, or when `owner` is given and another
    /// connection has made the transfer.
    func transfer(_ key: String, of owner: String? = nil) throws(PortalError) -> Transfer {
        guard let transfer = transfers.withLock({ $0[key] }), owner == nil || transfer.owner.name == owner else { throw Self.unknown }
        return transfer
    }

    /// As `transfer`, and ends it when it is one that ends when it is taken.
    func take(_ key: String) throws(PortalError) -> Transfer {
        try transfers.withLock { (transfers: inout [String: Transfer]) throws(PortalError) in
            guard let transfer = transfers[key] else { throw Self.unknown }
            if transfer.endsWhenTaken { transfers[key] = nil }
            return transfer
        }
    }

    func add(_ files: [Documents.Addition], to key: String) throws(PortalError) {
        try transfers.withLock { (transfers: inout [String: Transfer]) throws(PortalError) in
            guard let transfer = transfers[key] else { throw Self.unknown }
            let (owner, all) = (transfer.owner, transfers.values)
            let fits =
                owner.isOwner
                ? Self.count(all) { $0.isOwner } + files.count <= Self.mostFilesOfOwner
                : Self.count(all) { $0.app == owner.app } + files.count <= Self.mostFilesOfAnApp
                    && Self.count(all) { !$0.isOwner } + files.count <= Self.mostFilesOfApps
            guard fits, transfer.files.count + files.count <= Self.mostFiles else {
                throw PortalError(.limitsExceeded, "Too many files")
            }
            transfers[key]?.files += files
        }
    }

    private static func count(_ transfers: some Sequence<Transfer>, of isOwner: (Caller) -> Bool) -> Int {
        transfers.reduce(0) { $0 + (isOwner($1.owner) ? $1.files.count : 0) }
    }

    /// Returns false when it had ended already.
    func end(_ key: String) -> Bool { transfers.withLock { $0.removeValue(forKey: key) != nil } }

    /// Ends the transfers of a connection that is gone. No receiver is left to notify.
    func endAll(of owner: String) { transfers.withLock { $0 = $0.filter { $0.value.owner.name != owner } } }
}

/// How many descriptors may be held for others. The bus gives up a connection that has no room for a message's, so there must always be some left.
enum DescriptorShare {
    private static let limit: Int = {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 1024 }
        return Int(truncatingIfNeeded: min(limit.rlim_cur, 1 << 20))
    }()

    /// Returns `count`, or an eighth of this process's limit (at least 16) if that is less, because
    /// five kinds of holders take their share.
    static func most(_ count: Int) -> Int { min(count, max(16, limit / 8)) }
}
