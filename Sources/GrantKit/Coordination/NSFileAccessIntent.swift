import Foundation
import GrantAdministration
import GrantSystem

/// One item of an asynchronous coordination, and how it is to be used. When the accessor runs, `url` is where the item is then.
///
/// Locking: its own, for a look.
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

    /// To read the item.
    public static func readingIntent(with url: URL, options: NSFileCoordinator.ReadingOptions = []) -> NSFileAccessIntent {
        NSFileAccessIntent(url, isWriting: false) { .reading($0, options) }
    }

    /// To write the item, which need not exist yet.
    public static func writingIntent(with url: URL, options: NSFileCoordinator.WritingOptions = []) -> NSFileAccessIntent {
        NSFileAccessIntent(url, isWriting: true) { .writing($0, options) }
    }

    /// Where the item is: as it was named until the accessor runs, then where it was found.
    public internal(set) var url: URL {
        get { current.withLock { $0 } }
        set { current.withLock { $0 = newValue } }
    }
}
