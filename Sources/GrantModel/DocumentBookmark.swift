/// The part of a bookmark that only bookmarks of files have.
public struct DocumentBookmark: Hashable, Sendable {
    /// How a document is shown in a view.
    public enum Form: UInt8, Sendable, CaseIterable {
        /// As a file, under the grant's name.
        case file = 0
        /// As a directory of the grant's name, which holds the document and what its program makes beside it.
        case directory = 1
    }

    /// The file's name when it was granted. The view keeps it, even if the file is renamed on the
    /// host later.
    public let name: GrantName
    public var form: Form

    public init(name: GrantName, form: Form) {
        self.name = name
        self.form = form
    }
}
