import Foundation

extension NSURL {
    /// How the data of a bookmark is made. The names and numbers are Apple's.
    public struct BookmarkCreationOptions: OptionSet, Sendable {
        /// The options as bits, with Apple's numbers.
        public let rawValue: UInt
        /// Bits that have no name here change nothing.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// There: less is remembered. Here: the same as without; bookmarks are small.
        public static let minimalBookmark = BookmarkCreationOptions(rawValue: 1 << 9)
        /// There: with what an alias file needs. Here: the same as without; the data may be written to any file.
        public static let suitableForBookmarkFile = BookmarkCreationOptions(rawValue: 1 << 10)
        /// The data remembers the grant through which the item is reached, sealed by the store. There (macOS): the app's own right to it.
        public static let withSecurityScope = BookmarkCreationOptions(rawValue: 1 << 11)
        /// With `withSecurityScope`: for reading only. There: the process that resolves the data may not write. Here the grant says who may: for one
        /// that lets write, making the bookmark fails with `featureUnsupported` (`grantfs set NAME --access read-only`).
        public static let securityScopeAllowOnlyReadAccess = BookmarkCreationOptions(rawValue: 1 << 12)
        /// Access that was started is not remembered: the data finds the item by its identity alone.
        public static let withoutImplicitSecurityScope = BookmarkCreationOptions(rawValue: 1 << 29)
    }

    /// How a bookmark's item is looked for. The names and numbers are Apple's.
    public struct BookmarkResolutionOptions: OptionSet, Sendable {
        /// The options as bits, with Apple's numbers.
        public let rawValue: UInt
        /// Bits that have no name here change nothing.
        public init(rawValue: UInt) { self.rawValue = rawValue }

        /// There: nobody is asked for a password. Here nobody ever is.
        public static let withoutUI = BookmarkResolutionOptions(rawValue: 1 << 8)
        /// There: no volume is mounted for it. Here none ever is.
        public static let withoutMounting = BookmarkResolutionOptions(rawValue: 1 << 9)
        /// The data must lead through a grant; data that does not is `fileReadCorruptFile`. (Data that does is resolved through its grant without this option as well.)
        public static let withSecurityScope = BookmarkResolutionOptions(rawValue: 1 << 10)
        /// There: access is not started by resolving. Here it never is.
        public static let withoutImplicitStartAccessing = BookmarkResolutionOptions(rawValue: 1 << 15)
    }
}

extension URL {
    /// See `NSURL.BookmarkCreationOptions`.
    public typealias BookmarkCreationOptions = NSURL.BookmarkCreationOptions
    /// See `NSURL.BookmarkResolutionOptions`.
    public typealias BookmarkResolutionOptions = NSURL.BookmarkResolutionOptions
}
