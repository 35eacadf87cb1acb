import Foundation

/// Whoever shows a file or directory to somebody, or keeps it open: others who coordinate ask it to step aside, and tell it what became of the item.
///
/// Where its item is granted and mounted it hears of what every process coordinates, `grantfs coordinate` included, and is asked to save before a
/// `grantfs revoke --grace`; elsewhere of what is coordinated in its own process. There, always of every process. Register with
/// `NSFileCoordinator.addFilePresenter(_:)`. Every message comes on `presentedItemOperationQueue`. What is asked must be answered
/// by calling what was handed over; who does not answer within five seconds is passed over. There, whoever asks waits for ever.
///
/// One that names its item in a mount is given URLs in that mount and no others. What is moved out of the grant has changed then, and where it is now is not said.
///
/// When the grant is revoked nothing is said; when it is restored, `presentedItemDidChange()`.
///
/// What Apple has as optional has a default here that does nothing, and answers at once. The forms of the questions that are `async` are not here. Versions and attributes of iCloud are not known.
@preconcurrency public protocol NSFilePresenter: NSObjectProtocol {
    /// What is presented. It is looked at when the presenter is registered.
    var presentedItemURL: URL? { get }
    /// Where the messages are delivered; one that does one thing at a time keeps them in order. Not a queue whose thread waits for a coordinated access.
    var presentedItemOperationQueue: OperationQueue { get }
    /// Not used here. There, the item through which a sandboxed app reaches this one.
    var primaryPresentedItemURL: URL? { get }

    /// Somebody is going to read the item, or what lies below it. Call `reader`; what you hand to it is called on the queue when that is over.
    func relinquishPresentedItem(toReader reader: @escaping @Sendable ((@Sendable () -> Void)?) -> Void)
    /// Somebody is going to write the item, or what lies below it: stop using it, then call `writer`.
    func relinquishPresentedItem(toWriter writer: @escaping @Sendable ((@Sendable () -> Void)?) -> Void)
    /// Write what is not written yet, then call the handler, with the error if that failed.
    func savePresentedItemChanges(completionHandler: @escaping @Sendable ((any Error)?) -> Void)
    /// The item is going to be deleted: close it, then call the handler.
    func accommodatePresentedItemDeletion(completionHandler: @escaping @Sendable ((any Error)?) -> Void)
    /// The same for something in the presented directory.
    func accommodatePresentedSubitemDeletion(at url: URL, completionHandler: @escaping @Sendable ((any Error)?) -> Void)

    /// The item, or a directory above it, is at another place now; or the grant through which it is named in a mount has another name. Give that in `presentedItemURL`
    /// from now on.
    func presentedItemDidMove(to newURL: URL)
    /// The item's content or attributes have changed; also when it may have, and nobody can say.
    func presentedItemDidChange()
    /// There is something new in the presented directory.
    func presentedSubitemDidAppear(at url: URL)
    /// Something in the presented directory has another place now, there or elsewhere.
    func presentedSubitem(at oldURL: URL, didMoveTo newURL: URL)
    /// Something in the presented directory has other content or attributes now, or is gone.
    func presentedSubitemDidChange(at url: URL)
}

/// What Apple has as optional: answers at once, and nothing else.
extension NSFilePresenter {
    public var primaryPresentedItemURL: URL? { nil }
    public func relinquishPresentedItem(toReader reader: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) { reader(nil) }
    public func relinquishPresentedItem(toWriter writer: @escaping @Sendable ((@Sendable () -> Void)?) -> Void) { writer(nil) }
    public func savePresentedItemChanges(completionHandler: @escaping @Sendable ((any Error)?) -> Void) { completionHandler(nil) }
    public func accommodatePresentedItemDeletion(completionHandler: @escaping @Sendable ((any Error)?) -> Void) { completionHandler(nil) }
    public func accommodatePresentedSubitemDeletion(at url: URL, completionHandler: @escaping @Sendable ((any Error)?) -> Void) {
        completionHandler(nil)
    }
    public func presentedItemDidMove(to newURL: URL) {}
    public func presentedItemDidChange() {}
    public func presentedSubitemDidAppear(at url: URL) {}
    public func presentedSubitem(at oldURL: URL, didMoveTo newURL: URL) {}
    public func presentedSubitemDidChange(at url: URL) {}
}
