import Foundation
import GrantAdministration
import GrantModel

extension NSFileCoordinator {
    /// Reads one item. The accessor gets its present URL.
    public func coordinate(
        readingItemAt url: URL, options: ReadingOptions = [], error: NSErrorPointer, byAccessor reader: (URL) -> Void
    ) {
        if options.contains(.forUploading) { return upload(url, options, error: error, reader) }
        coordinate([(url, { .reading($0, options) })], error: error, isWriting: false) { reader($0[0]) }
    }

    /// Writes one item, which need not exist yet. The accessor gets its present URL.
    public func coordinate(
        writingItemAt url: URL, options: WritingOptions = [], error: NSErrorPointer, byAccessor writer: (URL) -> Void
    ) {
        coordinate([(url, { .writing($0, options) })], error: error, isWriting: true) { writer($0[0]) }
    }

    /// Reads one item to write another. Both are claimed at once, so that two callers do not wait for each other.
    public func coordinate(
        readingItemAt readingURL: URL, options readingOptions: ReadingOptions = [], writingItemAt writingURL: URL,
        options writingOptions: WritingOptions = [], error: NSErrorPointer, byAccessor readerWriter: (URL, URL) -> Void
    ) {
        coordinate(
            [(readingURL, { .reading($0, readingOptions) }), (writingURL, { .writing($0, writingOptions) })], error: error, isWriting: true
        ) { readerWriter($0[0], $0[1]) }
    }

    /// Writes two items, such as the old and the new place of a moved one. Both are claimed at once.
    public func coordinate(
        writingItemAt url1: URL, options options1: WritingOptions = [], writingItemAt url2: URL, options options2: WritingOptions = [],
        error: NSErrorPointer, byAccessor writer: (URL, URL) -> Void
    ) {
        coordinate([(url1, { .writing($0, options1) }), (url2, { .writing($0, options2) })], error: error, isWriting: true) {
            writer($0[0], $0[1])
        }
    }

    /// Claims many items at once for a batch. In its accessor, the same coordinator coordinates each of them without waiting.
    ///
    /// The accessor runs on the calling thread. It calls its completion handler when the batch is
    /// done, at once or later, from any thread. The claims are held until then, or until the
    /// handler is released.
    public func prepare(
        forReadingItemsAt readingURLs: [URL], options readingOptions: ReadingOptions = [], writingItemsAt writingURLs: [URL],
        options writingOptions: WritingOptions = [], error: NSErrorPointer,
        byAccessor batchAccessor: (@escaping @Sendable () -> Void) -> Void
    ) {
        let reading = readingURLs.map { url in (url, { CoordinatedAccess.reading($0, readingOptions) }) }
        let writing = writingURLs.map { url in (url, { CoordinatedAccess.writing($0, writingOptions) }) }
        if reading.isEmpty && writing.isEmpty { return batchAccessor({}) }
        do throws(CoordinationError) {
            let work = CoordinatedWork.part()
            let claim = try claim(reading + writing, for: work)
            work.run { batchAccessor { [self] in end(claim) } }
        } catch let failure {
            error?.pointee = CocoaError.error(failure, url: readingURLs.first ?? writingURLs.first, isWriting: !writing.isEmpty)
        }
    }

    /// The accessor works on a copy. The item is claimed only while that is made.
    private func upload(_ url: URL, _ options: ReadingOptions, error: NSErrorPointer, _ reader: (URL) -> Void) {
        var copy: Result<UploadCopy, GrantError>?
        coordinate([(url, { .reading($0, options) })], error: error, isWriting: false) { urls in
            copy = Result { () throws(GrantError) in try UploadCopy(of: urls[0]) { () throws(GrantError) in try self.stopIfCancelled() } }
        }
        switch copy {
        case nil: break
        case .failure where isCancelled: error?.pointee = CocoaError.error(.cancelled, url: url, isWriting: false)
        case .failure(let failure): error?.pointee = CocoaError(failure, url: url, isMaking: true) as NSError
        case .success(let copy):
            defer { copy.remove() }
            reader(copy.url)
        }
    }
}
