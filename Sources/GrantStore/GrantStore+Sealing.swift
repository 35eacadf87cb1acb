import GrantModel

extension GrantStore {
    /// Which store this is: the same as long as its key is, and another for every other store. It tells nothing of the key.
    public var fingerprint: UInt64 { derived(for: "store").hash(Array("fingerprint".utf8)) }

    /// A seal over bytes that leave the store, such as those of a bookmark with a security scope: nobody who cannot read the store makes
    /// one that fits. `purpose` keeps seals apart that are made for different things, and all of them from those of the store's own rows.
    public func seal(_ bytes: [UInt8], for purpose: String) -> UInt64 { derived(for: purpose).hash(bytes) }

    /// A key of its own for each purpose, so that no sealed row passes for something else.
    private func derived(for purpose: String) -> SipHash {
        SipHash(key0: seal.hash(Array("key 0 for \(purpose)".utf8)), key1: seal.hash(Array("key 1 for \(purpose)".utf8)))
    }
}
