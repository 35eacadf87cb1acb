import GrantModel
import GrantTerminal

/// The state machine of `pick`, without a terminal, a disk or a store. It turns keys and answers into effects.
public struct Picker: Sendable {
    enum Page: Equatable {
        case browsing
        case reviewing
        /// The grants are being made, which no key can undo.
        case granting
        case help
    }

    enum Content {
        case loading
        case failed(String)
        case entries(PickerEntries)
    }

    /// Work for the session.
    public enum Effect: Equatable, Sendable {
        /// List a directory, and answer with this number.
        case list([UInt8], number: Int)
        /// Check whether the directories may be granted, and which names are taken.
        case look([[UInt8]])
        case grant([PickerChoice])
        case cancel
    }

    /// The result of an effect.
    public enum Answer: Sendable {
        case listed(PickerEntries, number: Int)
        case unreadable(String, number: Int)
        /// The requested path is a file, which can be granted. The value is its canonical path. Its
        /// directory was listed before.
        case file([UInt8], number: Int)
        case looked([UInt8], PickerChoice.Finding)
        case taken([PickerChoice.Slot])
        /// The directories granted now, with their views.
        case granted([[UInt8]: [ViewName]])
        /// Nothing was granted.
        case refused(String)
    }

    // The defaults of a new choice.
    let view: ViewName
    let access: Access
    let expiry: String?
    /// Throws if the text is not a time, or lies in the past.
    let checkExpiry: @Sendable (String) throws(GrantError) -> Void
    /// Replaces `~` in a path that is typed.
    let home: [UInt8]?

    var page = Page.browsing
    var size = Size(rows: 24, columns: 80)
    /// One line at the bottom, until the next key.
    var message = ""

    // The page of directories.
    var path: [UInt8]
    var content = Content.loading
    var filter = LineEditor()
    var showsHidden = false
    /// The indices of the visible entries, below `./` and `../`.
    var places: [Int] = []
    var window = ListWindow()
    /// The name to select once the directory is listed.
    var wanted: [UInt8]?
    var number = 0

    /// The directories granted already, by path.
    var granted: [[UInt8]: [ViewName]] = [:]

    // The page of choices.
    var choices: [PickerChoice] = []
    var taken: Set<PickerChoice.Slot> = []
    var reviewWindow = ListWindow()
    var editing: Editing?

    struct Editing {
        enum Field { case name, view, expiry }
        let field: Field
        var line: LineEditor
    }

    public init(
        start: [UInt8], view: ViewName, access: Access, expiry: String? = nil, home: [UInt8]? = nil,
        checkExpiry: @escaping @Sendable (String) throws(GrantError) -> Void = { _ in }
    ) {
        (path, self.view, self.access, self.expiry, self.home) = (start, view, access, expiry, home)
        self.checkExpiry = checkExpiry
    }

    /// Returns the first effects.
    public mutating func begin(_ size: Size) -> [Effect] {
        self.size = size
        return open(path)
    }

    public var directory: [UInt8] { path }

    public mutating func resize(_ size: Size) {
        self.size = size
        show()
    }

    public mutating func handle(_ key: Key) -> [Effect] {
        message = ""
        if page == .granting {
            message = "it is being granted: that ends by itself"
            return []
        }
        if key == .control("c") { return [.cancel] }
        switch page {
        case .browsing: return browse(key)
        case .reviewing: return review(key)
        case .help, .granting:
            page = .browsing
            return []
        }
    }

    public mutating func handle(_ answer: Answer) {
        switch answer {
        case .listed(let entries, let number) where number == self.number: list(entries)
        case .unreadable(let reason, let number) where number == self.number:
            content = .failed(reason)
            places = []
            show()
        case .file(let path, let number) where number == self.number:
            if !isMarked(path) { choices.append(PickerChoice(path: path, view: view, access: access, expiry: expiry)) }
            message = "the file is marked: \(VisibleText.of(path))"
        case .listed, .unreadable, .file: break
        case .looked(let path, let finding):
            for index in choices.indices where choices[index].path == path { choices[index].finding = finding }
        case .taken(let places): taken = Set(places)
        case .granted(let places): granted = places
        case .refused(let reason):
            page = .reviewing
            message = "nothing is granted: \(reason)"
        }
    }

    public func frame(_ size: Size) -> Frame {
        switch page {
        case .browsing: browsingFrame(size)
        case .reviewing, .granting: reviewFrame(size)
        case .help: helpFrame(size)
        }
    }

    mutating func show() {
        window.show(count: rowCount, height: bodyHeight)
        reviewWindow.show(count: choices.count, height: reviewHeight)
    }
}
