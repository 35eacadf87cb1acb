import GrantModel
import Testing
import GrantTerminal

@testable import GrantConsoles
@testable import GrantAdministration
@testable import GrantMounts

@Suite struct PickerTests {
    @Test("Typing narrows the picker's list")
    func typingNarrowsTheListAndErasingWidensIt() {
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

    @Test("Enter and Left navigate in the picker")
    func directoriesAreEnteredAndLeft() {
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

    @Test("The picker opens a typed path")
    func aPathThatIsTypedIsOpened() {
        var picker = Picker(start: bytes("/d"), view: .standard, access: .readWrite, home: bytes("/home/ann"))
        _ = picker.begin(Size(rows: 24, columns: 80))
        picker.handle(listed("/d", ["a"], number: 1))
        picker.hit("/srv/../etc")
        #expect(picker.text.contains("Enter opens the directory of this path"))
        expect([.list(bytes("/etc"), number: 2)], from: &picker, .enter)
        picker.handle(listed("/etc", ["a"], number: 2))
        picker.hit("a/b/")
        expect([.list(bytes("/etc/a/b"), number: 3)], from: &picker, .enter)
        picker.handle(.unreadable("No such file or directory", number: 3))
        #expect(picker.text.contains("! No such file"))
        picker.hit("~/x")
        expect([.list(bytes("/home/ann/x"), number: 4)], from: &picker, .enter)
        picker.handle(listed("/home/ann/x", ["~"], number: 4))
        // Without a slash it is the name of a listed directory, or the home of no user.
        picker.hit("~")
        expect([.list(bytes("/home/ann"), number: 5)], from: &picker, .enter)
    }

    @Test("The picker shows which directories are granted")
    func whatIsGrantedAlreadyIsSaid() throws {
        var picker = picker(["a", "b"])
        picker.handle(.granted([bytes("/d/b"): [.standard, try ViewName("ci")], bytes("/e"): [.standard]]))
        let line = picker.text.split(separator: "\n").first { $0.contains("b/") }
        #expect(line?.hasSuffix("b/  granted to default, ci") == true)
        #expect(picker.text.components(separatedBy: "granted to").count == 2)
    }

    @Test("The picker ignores a late answer")
    func anAnswerForADirectoryThatWasLeftChangesNothing() {
        var picker = picker(["a"])
        picker.hit("", .enter)
        picker.handle(listed("/d", ["late"], number: 1))
        picker.handle(.unreadable("late", number: 1))
        #expect(picker.text.contains("reading…") && !picker.text.contains("late"))
    }

    @Test("The picker shows why a directory is unreadable and does not mark it")
    func whatCannotBeReadSaysWhyAndIsNotMarked() {
        var picker = picker(["a"])
        picker.hit("", .enter)
        picker.handle(.unreadable("Permission denied", number: 2))
        #expect(picker.text.contains("! Permission denied"))
        picker.hit("", .home, .character(" "))
        #expect(picker.choices.isEmpty && picker.text.contains("an unreadable directory cannot be granted"))
        expect([.list(bytes("/d"), number: 3)], from: &picker, .left)
    }

    @Test("The picker marks directories in several directories")
    func severalAreMarkedInSeveralDirectories() {
        var picker = picker(["a", "b"])
        picker.hit(" ", .insert, .down, .insert, .up, .enter)
        #expect(picker.markedPaths == ["/d/b"])
        picker.handle(listed("/d/b", ["c"], number: 2))
        picker.hit(" ")
        #expect(picker.markedPaths == ["/d/b", "/d/b/c"])
        picker.hit(" ")
        #expect(picker.markedPaths == ["/d/b"])
    }

    @Test("The picker opens a link but does not mark it")
    func aLinkIsOpenedButNotMarked() {
        var picker = picker([], links: ["link"])
        #expect(picker.text.contains("link/  symbolic link"))
        picker.hit(" ")
        #expect(picker.choices.isEmpty && picker.text.contains("a symbolic link is not followed"))
        expect([.list(bytes("/d/link"), number: 2)], from: &picker, .enter)
        picker.handle(listed("/elsewhere", ["x"], number: 2))
        picker.hit(" ")
        #expect(picker.markedPaths == ["/elsewhere/x"])
    }

    @Test("A second listing in the picker resolves links and keeps the selection")
    func theSecondAnswerKnowsTheLinksAndMovesNobody() {
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

    @Test("Escape leaves the picker's review first and then cancels the picker")
    func escapeCancelsAndFromTheReviewGoesBackFirst() {
        var picker = picker(["a"])
        expect([.look([bytes("/d/a")])], from: &picker, .tab)
        expect([], from: &picker, .escape)
        #expect(picker.markedPaths == ["/d/a"])
        expect([.cancel], from: &picker, .escape)
        picker.hit("", .tab)
        expect([.cancel], from: &picker, .control("c"))
    }

    @Test("Enter on the directory itself chooses it in the picker")
    func enterOnTheDirectoryItselfChoosesIt() {
        var picker = picker(["a"])
        expect([.look([bytes("/d")])], from: &picker, .home, .enter)
        picker.handle(.looked(bytes("/d"), .fine))
        expect([.grant(picker.choices)], from: &picker, .enter)
    }

    @Test(
        "The picker fits on any screen",
        arguments: [Size(rows: 24, columns: 80), Size(rows: 10, columns: 40), Size(rows: 60, columns: 200), Size(rows: 1, columns: 1)])
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
