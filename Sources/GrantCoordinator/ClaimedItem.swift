/// Names one file or directory, by whatever the owner of the table takes for its identity: three numbers that nothing else has.
public struct ItemID: Hashable, Sendable {
    public let (first, second): (UInt64, UInt64)
    public let third: Int64

    public init(_ first: UInt64, _ second: UInt64, _ third: Int64) {
        (self.first, self.second) = (first, second)
        self.third = third
    }
}

/// A name in a directory, whether anything stands there or not.
public struct ItemPlace: Hashable, Sendable {
    public let directory: ItemID
    public let name: [UInt8]

    public init(directory: ItemID, name: [UInt8]) {
        self.directory = directory
        self.name = name
    }
}

/// What a claim is about: a file, or a directory with all that lies below it.
///
/// By identity and by place. By identity it cannot escape by being renamed; by its place it cannot escape by being replaced, which is how most
/// programs save: the new file is another one, under the name that was claimed.
public struct ClaimedItem: Equatable, Sendable {
    /// What stood at the place when it was claimed, and what stands there now; empty where there is nothing yet.
    public var identities: [ItemID]
    /// nil for what has no name inside a grant: the granted directory itself.
    public var place: ItemPlace?
    /// The directories above, in any order.
    public var ancestors: [ItemID]

    public init(identities: [ItemID], place: ItemPlace?, ancestors: [ItemID]) {
        self.identities = identities
        self.place = place
        self.ancestors = ancestors
    }

    /// Whether the two are the same, or one lies below the other.
    public func overlaps(_ other: ClaimedItem) -> Bool {
        if let place, place == other.place { return true }
        for identity in identities where other.identities.contains(identity) || other.ancestors.contains(identity) { return true }
        for identity in other.identities where ancestors.contains(identity) { return true }
        return false
    }
}

/// What a claim, or an operation, does with an item.
public enum ItemUse: UInt8, Sendable, CaseIterable {
    case readContent = 1
    case readMetadata
    case writeContent
    case writeMetadata
    /// Removes it, moves it or puts another in its place: nobody else may do anything with it meanwhile.
    case displace

    public var isReading: Bool { self == .readContent || self == .readMetadata }
    private var isMetadata: Bool { self == .readMetadata || self == .writeMetadata }

    /// Readers share, a writer excludes. What is about metadata alone meets what is about metadata, and what displaces the item.
    public func excludes(_ other: ItemUse) -> Bool {
        if isReading && other.isReading { return false }
        if self == .displace || other == .displace { return true }
        return isMetadata == other.isMetadata
    }
}

/// An item, and what is to be done with it.
public struct ItemAccess: Equatable, Sendable {
    public var item: ClaimedItem
    public var use: ItemUse

    public init(_ item: ClaimedItem, _ use: ItemUse) {
        self.item = item
        self.use = use
    }

    public func conflicts(with other: ItemAccess) -> Bool { use.excludes(other.use) && item.overlaps(other.item) }
}
