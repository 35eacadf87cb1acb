import Foundation

/// An object that shows a file or directory, or keeps it open. Others who coordinate ask it to relinquish the item, and tell it what
/// happened to it.
///
/// If its item is granted and mounted, it gets messages about every process that coordinates,
/// `grantfs coordinate` included, and is asked to save before a `grantfs revoke --grace`. Otherwise
/// it gets messages about its own process. There, it always gets messages about every process.
/// Register with `NSFileCoordinator.addFilePresenter(_:)`. Every message arrives on
/// `presentedItemOperationQueue`. A question is answered by calling the block that came with it.
/// The questioner waits five seconds for the answers. There, it waits without a limit.
///
/// A presenter that names its item in a mount gets only URLs in that mount. An item that was moved
/// out of the grant counts as changed. Its new place is not reported.
///
/// A revocation is not reported. A restore is reported by `presentedItemDidChange()`.
///
/// Apple's optional methods have defaults here that do nothing and answer at once. The `async` forms of questions are not available,
/// nor are versions and attributes of iCloud.
@preconcurrency public protocol NSFilePresenter: NSObjectProtocol {
    /// The presented item. It is read when the presenter is registered.
    var presentedItemURL: URL? { get }
    /// The queue for messages. A serial one keeps them in order. Its thread must not wait for a
    /// coordinated access.
    var presentedItemOperationQueue: OperationQueue { get }
    /// It is not used here. There, it is the item that gives a sandboxed app access to this one.
    var primaryPresentedItemURL: URL? { get }

    /// Another claimant is about to read the item, or something in it. Call `reader`. The block
    /// that you pass to it is called on the queue when the access is over.
    func relinquishPresentedItem(toReader reader: @escaping @Sendable ((@Sendable () -> Void)?) -> Void)
    /// Another claimant is about to write the item, or something in it: stop using it, then call `writer`.
    func relinquishPresentedItem(toWriter writer: @escaping @Sendable ((@Sendable () -> Void)?) -> Void)
    /// Write unsaved changes, then call the handler, with the error if that failed.
    func savePresentedItemChanges(completionHandler: @escaping @Sendable ((any Error)?) -> Void)
    /// The item is about to be deleted: close it, then call the handler.
    func accommodatePresentedItemDeletion(completionHandler: @escaping @Sendable ((any Error)?) -> Void)
    /// The same for an item in the presented directory.
    func accommodatePresentedSubitemDeletion(at url: URL, completionHandler: @escaping @Sendable ((any Error)?) -> Void)

    /// The item, or a directory above it, was moved, or the grant through which it is named in a
    /// mount was renamed. Return the new URL in `presentedItemURL` from now on.
    func presentedItemDidMove(to newURL: URL)
    /// The item's content or attributes have changed, or may have.
    func presentedItemDidChange()
    /// There is a new item in the presented directory.
    func presentedSubitemDidAppear(at url: URL)
    /// An item in the presented directory was moved, within it or elsewhere.
    func presentedSubitem(at oldURL: URL, didMoveTo newURL: URL)
    /// An item in the presented directory was changed or removed.
    func presentedSubitemDidChange(at url: URL)
}

/// Defaults for Apple's optional methods, which only answer at once.
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
