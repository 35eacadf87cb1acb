import GrantModel

/// How a document was made, as the permission store keeps it.
struct DocumentFlags: OptionSet, Sendable, Hashable {
    let rawValue: UInt32
    /// Never given for another `Add` of the same file.
    static let unique = DocumentFlags(rawValue: 1)
    /// The document is of this session alone, and not in the permission store.
    static let transient = DocumentFlags(rawValue: 2)
    static let directory = DocumentFlags(rawValue: 4)
}

/// What a caller asks for with a document.
struct AddFlags: OptionSet, Sendable {
    let rawValue: UInt32
    static let reuseExisting = AddFlags(rawValue: 1)
    static let persistent = AddFlags(rawValue: 2)
    static let asNeededByApp = AddFlags(rawValue: 4)
    static let exportDirectory = AddFlags(rawValue: 8)
    static let all: AddFlags = [.reuseExisting, .persistent, .asNeededByApp, .exportDirectory]

    /// The properties that the document keeps.
    var document: DocumentFlags {
        var flags: DocumentFlags = []
        if !contains(.reuseExisting) { flags.insert(.unique) }
        if !contains(.persistent) { flags.insert(.transient) }
        if contains(.exportDirectory) { flags.insert(.directory) }
        return flags
    }
}

/// One document: an id, which is its name in every view that shows it, and what the permission store says of it.
struct Document: Sendable {
    let id: String
    /// Where the file was when it became one.
    var path: [UInt8]
    /// Of the directory that holds the file, or of the directory itself, as they were then.
    var device: UInt64
    var inode: UInt64
    var flags: DocumentFlags
    var permissions: [String: Permissions] = [:]

    var isTransient: Bool { flags.contains(.transient) }
}

/// Names that documents and applications have.
enum DocumentNames {
    /// The view of the host, in which every document is.
    static let host = known("app:")

    /// The view of an application, or nil for a text that is not an application's name.
    static func view(of app: String) -> ViewName? { isApp(app) ? try? ViewName("app:\(app)") : nil }

    /// Returns the application whose view it is, an empty text for the host's view, or nil for
    /// another view.
    static func app(of view: ViewName) -> String? {
        guard view.description.hasPrefix("app:") else { return nil }
        let app = String(view.description.dropFirst(4))
        return app.isEmpty || isApp(app) ? app : nil
    }

    static func random() -> String { Hexadecimal.text(UInt64.random(in: 0...UInt64(UInt32.max))).suffix(8).description }

    /// Whether it can be one that this program has made.
    static func isID(_ name: String) -> Bool { name.utf8.count == 8 && isStoredID(name) }

    /// Whether it can be one at all: others leave zeros at the beginning out.
    static func isStoredID(_ name: String) -> Bool {
        (1...8).contains(name.utf8.count) && name.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
    }

    /// As D-Bus and Flatpak have it: elements of letters, digits, `_` and `-`, of which none begins with a digit, two at the least, 255 bytes at the most.
    static func isApp(_ name: String) -> Bool {
        guard name.utf8.count <= 255 else { return false }
        let elements = name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        return elements.count >= 2
            && elements.allSatisfy { element in
                guard let first = element.first, !(0x30...0x39).contains(first) else { return false }
                return element.allSatisfy { byte in
                    (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte & 0xDF) || byte == 0x5F || byte == 0x2D
                }
            }
    }

    private static func known(_ text: String) -> ViewName { (try? ViewName(text)) ?? .standard }
}
