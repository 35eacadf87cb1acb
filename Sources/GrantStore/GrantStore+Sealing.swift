import GrantModel

extension GrantStore {
    /// Identifies the store. Depends on the store's key alone, and does not reveal it.
    public var fingerprint: UInt64 { derived(for: "store").hash(Array("fingerprint".utf8)) }

    /// Returns a seal over bytes that leave the store, such as a security-scoped bookmark.
    ///
    /// Only a process that can read the store can make one.
    ///
    /// - Parameter purpose: Separates seals for different things from each other and from those of
    ///   the store's rows.
    public func seal(_ bytes: [UInt8], for purpose: String) -> UInt64 { derived(for: purpose).hash(bytes) }

    /// Derives a key for each purpose, so that a seal for one is invalid for the others.
    private func derived(for purpose: String) -> SipHash {
        SipHash(key0: seal.hash(Array("key 0 for \(purpose)".utf8)), key1: seal.hash(Array("key 1 for \(purpose)".utf8)))
    }
}
