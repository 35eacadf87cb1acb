import GrantModel
import Testing
import GrantTerminal

@testable import GrantConsoles
@testable import GrantAdministration
@testable import GrantMounts

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

    @Test("A duplicate name blocks the picker's review until it is changed")
    func oneNameTwiceIsAProblemUntilNameOrViewIsAnother() {
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

    @Test("The picker's review shows that a name is taken")
    func aTakenNameIsAProblem() throws {
        var picker = reviewed()
        picker.handle(.taken([PickerChoice.Slot(view: .standard, name: try GrantName(chosen: bytes("x")))]))
        #expect(picker.text.contains("the view “default” has a grant “x” already"))
    }

    @Test("A refused directory blocks the picker's review until it is dropped")
    func whatMayNotBeGrantedIsDroppedOrKeepsTheRestBack() {
        var picker = reviewed()
        picker.hit("", .down, .character("v"), .character("2"), .enter)
        picker.handle(.looked(bytes("/d/x"), .refused("it holds the store")))
        #expect(picker.text.contains("! it holds the store"))
        expect([], from: &picker, .enter)
        picker.hit("", .up, .delete)
        expect([.grant(picker.choices)], from: &picker, .enter)
        #expect(picker.markedPaths == ["/d/x/x"])
    }

    @Test("The picker's review grants nothing before every look is done")
    func nothingIsGrantedBeforeEverythingWasLookedAt() {
        var picker = picker(["a"])
        picker.hit("", .tab)
        #expect(picker.text.contains("being looked at…"))
        expect([], from: &picker, .enter)
        picker.handle(.looked(bytes("/d/a"), .fine))
        // Leaving and entering the page again looks again.
        picker.hit("", .escape, .tab)
        expect([], from: &picker, .enter)
    }

    @Test("The picker's review ignores keys while it grants")
    func whileItIsGrantedNoKeyDoesAnything() {
        var picker = reviewed()
        picker.hit("n2", .enter)
        expect([.grant(picker.choices)], from: &picker, .enter)
        expect([], from: &picker, .control("c"))
        expect([], from: &picker, .escape, .enter)
        picker.handle(.refused("the store is full"))
        #expect(picker.text.contains("nothing is granted: the store is full"))
        expect([.grant(picker.choices)], from: &picker, .enter)
    }

    @Test("The picker's review accepts no invalid name")
    func aNameThatIsNoneIsNotTaken() {
        var picker = reviewed()
        picker.hit("n/", .enter)
        #expect(picker.text.contains("invalid name: it contains “/”"))
        picker.hit("", .escape)
        #expect(picker.choices[0].name?.description == "x" && picker.page == .reviewing)
    }

    @Test("The picker's review sets an expiry for each choice")
    func anExpiryIsWrittenAndIsTheChoices() throws {
        var picker = Picker(start: bytes("/d"), view: .standard, access: .readWrite, expiry: "7d") { (text) throws(GrantError) in
            if text == "soon" { throw GrantError(.usage, "“soon” is no time", advice: "2h") }
        }
        _ = picker.begin(Size(rows: 24, columns: 80))
        picker.handle(listed("/d", ["x", "y"], number: 1))
        picker.hit("", .character(" "), .down, .character(" "), .tab)
        #expect(picker.choices.map(\.expiry) == ["7d", "7d"] && picker.text.contains("view default  expires 7d"))
        picker.hit("e", .control("u"))
        picker.hit("soon", .enter)
        #expect(picker.text.contains("“soon” is no time (2h)"))
        picker.hit("", .control("u"))
        picker.hit("2h", .enter)
        picker.hit("", .down, .character("e"), .control("u"), .enter)
        #expect(picker.choices.map(\.expiry) == ["2h", nil])
    }

    @Test("The picker's review keeps a name that is not text, and the root needs one")
    func aNameThatIsNoTextIsKeptAndTheRootNeedsOne() {
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
