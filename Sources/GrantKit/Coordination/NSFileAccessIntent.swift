import Foundation
import GrantAdministration
import GrantSystem

/// One item of an asynchronous coordination, and its kind of access. When the accessor runs, `url` is the item's present URL.
///
/// Locking: its own, for an access.
public final class NSFileAccessIntent: NSObject, Sendable {
    private let current: Lock<URL>
    let access: @Sendable ([UInt8]) -> CoordinatedAccess
    let isWriting: Bool

    private init(_ url: URL, isWriting: Bool, _ access: @escaping @Sendable ([UInt8]) -> CoordinatedAccess) {
        current = Lock(url)
        self.access = access
        self.isWriting = isWriting
        super.init()
    }

    /// Makes an intent to read the item.
    public static func readingIntent(with url: URL, options: NSFileCoordinator.ReadingOptions = []) -> NSFileAccessIntent {
        NSFileAccessIntent(url, isWriting: false) { .reading($0, options) }
    }

    /// Makes an intent to write the item, which need not exist yet.
    public static func writingIntent(with url: URL, options: NSFileCoordinator.WritingOptions = []) -> NSFileAccessIntent {
        NSFileAccessIntent(url, isWriting: true) { .writing($0, options) }
    }

    /// The same, for the target of a symbolic link: it is resolved once, before the claim is made.
    static func writing(_ url: URL, options: NSFileCoordinator.WritingOptions, followsLink: Bool) -> NSFileAccessIntent {
        NSFileAccessIntent(url, isWriting: true) { path in
            var access = CoordinatedAccess.writing(path, options)
            access.followsLink = followsLink
            return access
        }
    }

    /// The URL as it was given until the accessor runs, then the item's present one.
    public internal(set) var url: URL {
        get { current.withLock { $0 } }
        set { current.withLock { $0 = newValue } }
    }
}
