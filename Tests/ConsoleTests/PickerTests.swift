import GrantModel
import Testing
import TerminalUI

@testable import Consoles
@testable import GrantAdministration

private func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

/// A picker in /d, which has the named directories and links.
private func picker(_ directories: [String], links: [String] = [], access: Access = .readWrite) -> Picker {
    var picker = Picker(start: bytes("/d"), view: .standard, access: access)
    do {
        let effects = picker.begin(Size(rows: 24, columns: 80))
        #expect(effects == [.list(bytes("/d"), number: 1)])
    }
    picker.handle(listed("/d", directories, links, number: 1))
    return picker
}

private func listed(_ path: String, _ directories: [String], _ links: [String] = [], number: Int) -> Picker.Answer {
    let listing = DirectoryListing(path: bytes(path), directories: directories.map(bytes), links: links.map(bytes))
    return .listed(PickerEntries(listing, links: listing.links), number: number)
}

extension Picker {
    /// Types a text and hits keys; what the last one asked for.
    @discardableResult
    fileprivate mutating func hit(_ text: String = "", _ keys: Key...) -> [Effect] {
        var effects: [Effect] = []
        for scalar in text.unicodeScalars { effects = handle(.character(scalar)) }
        for key in keys { effects = handle(key) }
        return effects
    }

    fileprivate var selectedName: String? { row(window.selected).map { String(decoding: $0.name, as: UTF8.self) } }
    fileprivate var text: String { frame(size).text }
    fileprivate var markedPaths: [String] { choices.map { String(decoding: $0.path, as: UTF8.self) } }
}

/// Hits the keys, and compares what the last one asked for.
private func expect(_ effects: [Picker.Effect], from picker: inout Picker, _ keys: Key..., at place: SourceLocation = #_sourceLocation) {
    var given: [Picker.Effect] = []
    for key in keys { given = picker.handle(key) }
    #expect(given == effects, sourceLocation: place)
}

@Suite struct PickerTests {
    @Test func typingNarrowsTheListAndErasingWidensIt() {
        var picker = picker(["Beta", "alphabet", "gamma", ".hidden"])
        #expect(picker.selectedName == "alphabet")
        picker.hit("BET")
        #expect(picker.rowCount == 2 && picker.selectedName == "alphabet")
        picker.hit("a")
        #expect(picker.rowCount == 1 && picker.selectedName == "Beta")
        picker.hit("", .backspace, .backspace, .backspace, .backspace)
        #expect(picker.rowCount == 5)
        picker.hit(".")
        #expect(picker.selectedName == ".hidden")
        picker.hit("", .control("u"), .control("t"))
        #expect(picker.rowCount == 6)
    }

    @Test func directoriesAreEnteredAndLeft() {
        var picker = picker(["a", "b"])
        expect([.list(bytes("/d/b"), number: 2)], from: &picker, .down, .enter)
        #expect(picker.text.contains("reading…"))
        picker.handle(listed("/d/b", ["c"], number: 2))
        #expect(picker.selectedName == "c")
        expect([.list(bytes("/d"), number: 3)], from: &picker, .backspace)
        picker.handle(listed("/d", ["a", "b"], number: 3))
        #expect(picker.selectedName == "b")
        expect([.list(bytes("/"), number: 4)], from: &picker, .left)
        picker.handle(listed("/", ["d"], number: 4))
        expect([], from: &picker, .left)
    }

    @Test func anAnswerForADirectoryThatWasLeftChangesNothing() {
        var picker = picker(["a"])
        picker.hit("", .enter)
        picker.handle(listed("/d", ["late"], number: 1))
        picker.handle(.unreadable("late", number: 1))
        #expect(picker.text.contains("reading…") && !picker.text.contains("late"))
    }

    @Test func whatCannotBeReadSaysWhyAndIsNotMarked() {
        var picker = picker(["a"])
        picker.hit("", .enter)
        picker.handle(.unreadable("Permission denied", number: 2))
        #expect(picker.text.contains("! Permission denied"))
        picker.hit("", .home, .character(" "))
        #expect(picker.choices.isEmpty && picker.text.contains("what cannot be read cannot be granted"))
        expect([.list(bytes("/d"), number: 3)], from: &picker, .left)
    }

    @Test func severalAreMarkedInSeveralDirectories() {
        var picker = picker(["a", "b"])
        picker.hit(" ", .insert, .down, .insert, .up, .enter)
        #expect(picker.markedPaths == ["/d/b"])
        picker.handle(listed("/d/b", ["c"], number: 2))
        picker.hit(" ")
        #expect(picker.markedPaths == ["/d/b", "/d/b/c"])
        picker.hit(" ")
        #expect(picker.markedPaths == ["/d/b"])
    }

    @Test func aLinkIsOpenedButNotMarked() {
        var picker = picker([], links: ["link"])
        #expect(picker.text.contains("link/  symbolic link"))
        picker.hit(" ")
        #expect(picker.choices.isEmpty && picker.text.contains("a symbolic link is not followed"))
        expect([.list(bytes("/d/link"), number: 2)], from: &picker, .enter)
        picker.handle(listed("/elsewhere", ["x"], number: 2))
        picker.hit(" ")
        #expect(picker.markedPaths == ["/elsewhere/x"])
    }

    @Test func theSecondAnswerKnowsTheLinksAndMovesNobody() {
        var picker = Picker(start: bytes("/d"), view: .standard, access: .readWrite)
        _ = picker.begin(Size(rows: 24, columns: 80))
        let listing = DirectoryListing(path: bytes("/d"), directories: [bytes("m"), bytes("z")], links: [bytes("a"), bytes("file")])
        picker.handle(.listed(PickerEntries(listing, links: nil), number: 1))
        #expect(picker.text.contains("file/  symbolic link, to where is not known"))
        picker.hit("", .end)
        picker.handle(.listed(PickerEntries(listing, links: [bytes("a")]), number: 1))
        #expect(!picker.text.contains("file") && picker.text.contains("a/  symbolic link"))
        #expect(picker.selectedName == "z")
    }

    @Test func escapeCancelsAndFromTheReviewGoesBackFirst() {
        var picker = picker(["a"])
        expect([.look([bytes("/d/a")])], from: &picker, .tab)
        expect([], from: &picker, .escape)
        #expect(picker.markedPaths == ["/d/a"])
        expect([.cancel], from: &picker, .escape)
        picker.hit("", .tab)
        expect([.cancel], from: &picker, .control("c"))
    }

    @Test func enterOnTheDirectoryItselfChoosesIt() {
        var picker = picker(["a"])
        expect([.look([bytes("/d")])], from: &picker, .home, .enter)
        picker.handle(.looked(bytes("/d"), .fine))
        expect([.grant(picker.choices)], from: &picker, .enter)
    }

    @Test(arguments: [Size(rows: 24, columns: 80), Size(rows: 10, columns: 40), Size(rows: 60, columns: 200), Size(rows: 1, columns: 1)])
    func nothingIsWiderOrHigherThanTheScreen(_ size: Size) {
        let long = String(repeating: "日本-very-long-", count: 15)
        var picker = picker((0..<100).map { "\(long)\($0)" }, links: ["\(long)link"])
        picker.resize(size)
        let check = { (picker: Picker) in
            let frame = picker.frame(size)
            #expect(frame.lines.count <= size.rows && frame.lines.allSatisfy { $0.width <= size.columns })
        }
        check(picker)
        picker.hit("\u{1F600}very", .function(1))
        check(picker)
        picker.hit("x", .control("u"), .insert, .insert, .end, .insert, .tab)
        check(picker)
        #expect(picker.choices.count == 2)
        picker.hit("n")
        check(picker)
    }
}

@Suite struct PickerReviewTests {
    /// Two directories of one name, both looked at.
    private func reviewed() -> Picker {
        var picker = picker(["x"], access: .readOnly)
        picker.hit(" ", .enter)
        picker.handle(listed("/d/x", ["x"], number: 2))
        picker.hit(" ", .tab)
        for path in ["/d/x", "/d/x/x"] { picker.handle(.looked(bytes(path), .fine)) }
        return picker
    }

    @Test func oneNameTwiceIsAProblemUntilNameOrViewIsAnother() {
        var picker = reviewed()
        #expect(picker.text.contains("“x” is chosen twice in the view “default”"))
        expect([], from: &picker, .enter)
        #expect(picker.text.contains("nothing is granted: 2 of 2 cannot be"))
        picker.hit("n")
        picker.hit("2", .enter)
        #expect(picker.choices[0].name?.description == "x2")
        picker.hit("n", .control("u"), .character("x"), .enter, .down)
        #expect(picker.problem(0) != nil)
        picker.hit("v", .control("u"))
        picker.hit("ci", .enter)
        #expect(picker.choices[1].view.description == "ci" && picker.problem(0) == nil)
        expect([.grant(picker.choices)], from: &picker, .enter)
        #expect(picker.choices.map(\.access) == [.readOnly, .readOnly])
    }

    @Test func aTakenNameIsAProblem() throws {
        var picker = reviewed()
        picker.handle(.taken([PickerChoice.Place(view: .standard, name: try GrantName(chosen: bytes("x")))]))
        #expect(picker.text.contains("the view “default” has a grant “x” already"))
    }

    @Test func whatMayNotBeGrantedIsDroppedOrKeepsTheRestBack() {
        var picker = reviewed()
        picker.hit("", .down, .character("v"), .character("2"), .enter)
        picker.handle(.looked(bytes("/d/x"), .refused("it holds the store")))
        #expect(picker.text.contains("! it holds the store"))
        expect([], from: &picker, .enter)
        picker.hit("", .up, .delete)
        expect([.grant(picker.choices)], from: &picker, .enter)
        #expect(picker.markedPaths == ["/d/x/x"])
    }

    @Test func nothingIsGrantedBeforeEverythingWasLookedAt() {
        var picker = picker(["a"])
        picker.hit("", .tab)
        #expect(picker.text.contains("being looked at…"))
        expect([], from: &picker, .enter)
        picker.handle(.looked(bytes("/d/a"), .fine))
        // Whoever went back and came again gets a fresh look.
        picker.hit("", .escape, .tab)
        expect([], from: &picker, .enter)
    }

    @Test func whileItIsGrantedNoKeyDoesAnything() {
        var picker = reviewed()
        picker.hit("n2", .enter)
        expect([.grant(picker.choices)], from: &picker, .enter)
        expect([], from: &picker, .control("c"))
        expect([], from: &picker, .escape, .enter)
        picker.handle(.refused("the store is full"))
        #expect(picker.text.contains("nothing is granted: the store is full"))
        expect([.grant(picker.choices)], from: &picker, .enter)
    }

    @Test func aNameThatIsNoneIsNotTaken() {
        var picker = reviewed()
        picker.hit("n/", .enter)
        #expect(picker.text.contains("that is no name: it contains “/”"))
        picker.hit("", .escape)
        #expect(picker.choices[0].name?.description == "x" && picker.page == .reviewing)
    }

    @Test func aNameThatIsNoTextIsKeptAndTheRootNeedsOne() {
        var picker = Picker(start: bytes("/"), view: .standard, access: .readWrite)
        _ = picker.begin(Size(rows: 24, columns: 80))
        let listing = DirectoryListing(path: bytes("/"), directories: [[0x61, 0xFF]], links: [])
        picker.handle(.listed(PickerEntries(listing, links: []), number: 1))
        picker.hit(" ", .home, .character(" "), .tab)
        #expect(picker.choices[0].name?.bytes == [0x61, 0xFF] && picker.text.contains("a\\xff"))
        picker.hit("n", .escape)
        #expect(picker.choices[0].name?.bytes == [0x61, 0xFF])
        #expect(picker.text.contains("it has no name of its own"))
        picker.hit("", .down, .character("n"), .character("r"), .enter)
        #expect(picker.problem(1) == nil)
    }
}
