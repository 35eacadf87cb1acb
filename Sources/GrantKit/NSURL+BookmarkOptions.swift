import Foundation

extension NSURL {
    /// Options for making a bookmark. Names and numbers are Apple's.
    public struct BookmarkCreationOptions: OptionSet, Sendable {
        /// The options as bits, with Apple's numbers.
        public let rawValue: UInt
        /// Unknown bits have no effect.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// There: less data. Here: no effect, because bookmarks are small.
        public static let minimalBookmark = BookmarkCreationOptions(rawValue: 1 << 9)
        /// There: adds the data that an alias file needs. Here: no effect, because any data may be
        /// written to a file.
        public static let suitableForBookmarkFile = BookmarkCreationOptions(rawValue: 1 << 10)
        /// Records the grant that leads to the item, sealed by the store. There (macOS): the app's own right to it.
        public static let withSecurityScope = BookmarkCreationOptions(rawValue: 1 << 11)
        /// With `withSecurityScope`: for reading only. There: the process that resolves the data may not write. Here the grant has the
        /// access: for a read-write grant, making the bookmark fails with `featureUnsupported` (`grantfs set NAME --access read-only`).
        public static let securityScopeAllowOnlyReadAccess = BookmarkCreationOptions(rawValue: 1 << 12)
        /// Ignores started access: the data finds the item by its identity alone.
        public static let withoutImplicitSecurityScope = BookmarkCreationOptions(rawValue: 1 << 29)
    }

    /// Options for resolving a bookmark. Names and numbers are Apple's.
    public struct BookmarkResolutionOptions: OptionSet, Sendable {
        /// The options as bits, with Apple's numbers.
        public let rawValue: UInt
        /// Unknown bits have no effect.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// There: asks for no password. Here it never does.
        public static let withoutUI = BookmarkResolutionOptions(rawValue: 1 << 8)
        /// There: mounts no volume. Here it never does.
        public static let withoutMounting = BookmarkResolutionOptions(rawValue: 1 << 9)
        /// Requires data with a grant. Other data fails with `fileReadCorruptFile`. (Data with a
        /// grant is resolved through it without this option as well.)
        public static let withSecurityScope = BookmarkResolutionOptions(rawValue: 1 << 10)
        /// There: resolving does not start access. Here it never does.
        public static let withoutImplicitStartAccessing = BookmarkResolutionOptions(rawValue: 1 << 15)
    }
}

extension URL {
    /// See `NSURL.BookmarkCreationOptions`.
    public typealias BookmarkCreationOptions = NSURL.BookmarkCreationOptions
    /// See `NSURL.BookmarkResolutionOptions`.
    public typealias BookmarkResolutionOptions = NSURL.BookmarkResolutionOptions
}
