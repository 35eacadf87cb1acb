import GrantModel
import GrantSystem
import GrantTerminal
import Testing

@testable import GrantConsoles
@testable import GrantAdministration
@testable import GrantMounts

private let mountID = GrantID(high: 1, low: 1)

private func row(_ name: String, _ state: GrantState = .active, _ access: Access = .readWrite, number: UInt64, isLive: Bool = true) throws
    -> TopSnapshot.Row
{
    var row = TopSnapshot.Row(
        id: GrantID(high: 7, low: number), name: try GrantName(chosen: Array(name.utf8)), access: access, state: state,
        path: Array("/d/\(name)".utf8))
    row.isLive = isLive
    return row
}

/// One mount with two grants, and a view that is not mounted.
private func snapshot(seconds: Int64 = 10, requests: UInt64 = 0, _ change: (inout [TopSnapshot.Section]) -> Void = { _ in }) throws
    -> TopSnapshot
{
    var mounted = TopSnapshot.Section(view: .standard, mount: mountID)
    (mounted.mountpoint, mounted.requests, mounted.inodes) = (Array("/m".utf8), requests, 5)
    mounted.grants = [try row("alpha", number: 1), try row("beta", .revoked, .readOnly, number: 2)]
    mounted.holders = [
        Holder(pid: 5, command: Array("sh".utf8), kinds: [.fd, .cwd], paths: [Array("/m/alpha/x".utf8), Array("/m/alpha/y".utf8)]),
        Holder(pid: 6, command: Array("tail".utf8), kinds: [.fd], paths: [Array("/m/alphabet".utf8)]),
    ]
    var other = TopSnapshot.Section(view: try ViewName("other"))
    other.grants = [try row("gamma", number: 3, isLive: false)]
    var sections = [mounted, other]
    change(&sections)
    return TopSnapshot(time: seconds * 1_000_000_000, sections: sections)
}

extension Top {
    fileprivate init(_ snapshot: TopSnapshot, size: Size = Size(rows: 24, columns: 80)) {
        self.init(delay: 2)
        resize(size)
        handle(.seen(snapshot))
    }

    fileprivate mutating func hit(_ keys: Key...) -> [Effect] { keys.flatMap { handle($0) } }
    fileprivate var page: String { frame(size).text }
    /// The row with these words.
    fileprivate func line(_ words: String) -> String { page.split(separator: "\n").first { $0.contains(words) }.map(String.init) ?? "" }
}

/// Hits the keys, and compares what they ask for together.
private func expect(_ effects: [Top.Effect], from top: inout Top, _ keys: Key..., at place: SourceLocation = #_sourceLocation) {
    let given = keys.flatMap { top.handle($0) }
    #expect(given == effects, sourceLocation: place)
}

@Suite struct TopTests {
    @Test("`top` shows a dead mount")
    func aMountWhoseDaemonHasDiedIsSaidToBeDead() throws {
        let top = Top(try snapshot { $0[0].isDead = true })
        #expect(top.line("default").contains("! dead: its daemon has ended  at /m"))
        #expect(top.page.contains("tail"), "who holds something of it is shown")
    }

    @Test("`top` shows states as words")
    func statesAreWords() throws {
        let top = Top(try snapshot())
        #expect(top.line("alpha").contains("active") && top.line("alpha").contains("read-write"))
        #expect(top.line("beta").contains("revoked") && top.line("beta").contains("read-only"))
        #expect(top.line("other").contains("not mounted"))
        #expect(top.page.contains("1 mount, 3 grants"))
    }

    @Test("`top` shows the rates between two looks")
    func ratesAreWhatHappenedBetweenTwoLooks() throws {
        var top = Top(try snapshot(seconds: 10, requests: 1_000))
        #expect(top.line("at /m").contains("- op/s"))
        top.handle(
            .seen(try snapshot(seconds: 12, requests: 1_015) { $0[0].readBytes = 4096 }))
        #expect(top.line("at /m").contains("7.5 op/s"))
        // A new mount at the same place counts from 0.
        top.handle(.seen(try snapshot(seconds: 14, requests: 3)))
        #expect(top.line("at /m").contains(" 0 op/s"))
        #expect(TopRates.bytes(1536) == "1.5 KiB" && TopRates.bytes(0) == "0 B" && TopRates.bytes(3e9) == "2.8 GiB")
    }

    @Test("`top` shows the rates of each grant")
    func aGrantHasRatesOfItsOwn() throws {
        func seen(_ seconds: Int64, _ operations: UInt64, _ bytes: UInt64) throws -> Top.Answer {
            .seen(
                try snapshot(seconds: seconds) {
                    ($0[0].grants[0].operations, $0[0].grants[0].bytes) = (operations, bytes)
                    $0[0].grants[1].isLive = false
                })
        }
        var top = Top(try snapshot(seconds: 10))
        #expect(top.line("alpha").contains("-         -"), "nothing is known from one look")
        top.handle(try seen(12, 300, 4_096))
        #expect(top.line("alpha").contains("150   2.0 KiB "))
        #expect(top.line("beta").contains("-         -"), "what no mount speaks of")
        // One that was restored counts from 0.
        top.handle(try seen(14, 2, 0))
        #expect(top.line("alpha").contains(" 0       0 B "))
        // Where there is no room the directory of the selected one is told below.
        _ = top.hit(.down)
        #expect(top.page.contains("holds “alpha”, which is /d/alpha") && top.line("alpha").hasSuffix("  /d/alpha"))
        top.resize(Size(rows: 24, columns: 120))
        #expect(top.line("alpha").hasSuffix("/d/alpha") && top.line("GRANT").contains("RUNNING"))
    }

    @Test("`top` filters its list")
    func whatIsTypedNarrowsTheList() throws {
        var top = Top(try snapshot())
        expect([], from: &top, .character("/"), .character("G"), .character("a"))
        #expect(top.page.contains("show: Ga_") && top.page.contains("2 hidden"))
        #expect(top.rows.compactMap { top.row(of: $0)?.name.description } == ["gamma"])
        // A key of the list is a letter here. Keys that move the selection are not.
        expect([], from: &top, .character("q"), .backspace, .down, .enter)
        #expect(top.line("gamma").hasPrefix("> "))
        expect([.act(.revoke(GrantID(high: 7, low: 3)))], from: &top, .character("r"), .character("y"))
        expect([], from: &top, .escape)
        #expect(top.rows.count == 5 && top.current?.grant == GrantID(high: 7, low: 3))
        expect([], from: &top, .character("/"), .character("/"), .character("m"))
        #expect(top.rows.count == 3, "a mountpoint shows all of its view")
        expect([], from: &top, .character("x"), .character("x"))
        #expect(top.page.contains("nothing to show: 3 hidden"))
        expect([.quit], from: &top, .escape, .escape)
    }

    @Test("`top` hides revoked grants")
    func whatIsRevokedCanBeHidden() throws {
        var top = Top(try snapshot())
        _ = top.hit(.character("x"))
        #expect(!top.page.contains("beta") && top.page.contains("alpha") && top.page.contains("3 grants, 1 hidden"))
        _ = top.hit(.character("x"))
        #expect(top.page.contains("beta") && !top.page.contains("hidden"))
    }

    @Test("`top` shows when the selected grant ends")
    func whenTheSelectedGrantEndsIsTold() throws {
        var top = Top(
            try snapshot {
                $0[0].grants[0].secondsLeft = 7_300
                ($0[0].grants[0].inodes, $0[0].grants[0].denials) = (12, 3)
            })
        _ = top.hit(.down)
        #expect(top.line("which is").hasSuffix("which is /d/alpha, ends in 2 h, 12 inodes, 3 denied"))
        top.resize(Size(rows: 24, columns: 120))
        #expect(top.line("which is").hasSuffix("which is /d/alpha, ends in 2 h"))
        let told = [0, 119, 120, 7_199, 172_799, 1e9].map { TopRates.duration($0) }
        #expect(told == ["0 s", "119 s", "2 min", "119 min", "47 h", "11574 d"])
    }

    @Test("`top` has one blank line between its list and the holders")
    func nothingIsBlankBetweenTheListAndItsHolders() throws {
        let top = Top(try snapshot())
        let lines = top.page.components(separatedBy: "\n")
        let last = try #require(lines.firstIndex { $0.contains("gamma") })
        #expect(lines[last + 1].isEmpty && lines[last + 2].contains("hold something"))
    }

    @Test("`top` acts only after `y`")
    func nothingIsDoneBeforeSomebodySaysYes() throws {
        var top = Top(try snapshot())
        expect([], from: &top, .down, .character("r"))
        #expect(top.page.contains("Revoke “alpha” (000000000000) in the view “default”?"))
        expect([], from: &top, .enter, .character("x"), .down)
        #expect(top.page.contains("Revoke “alpha”"))
        expect([], from: &top, .character("n"))
        #expect(top.page.contains("nothing was changed"))
        expect([], from: &top, .character("r"), .escape)
        let done = top.hit(.character("r"), .character("y"))
        #expect(done == [.act(.revoke(GrantID(high: 7, low: 1)))])
        #expect(top.page.contains("revoking “alpha”…"))
        top.handle(.done("revoked “alpha”"))
        #expect(top.page.contains("revoked “alpha”"))
    }

    @Test("Each action key of `top` asks for its own action")
    func eachKeyAsksForWhatItDoes() throws {
        var top = Top(try snapshot())
        let yes = Key.character("y")
        expect([.act(.unmount(Array("/m".utf8)))], from: &top, .character("u"), yes)
        expect([.act(.set(GrantID(high: 7, low: 1), .readOnly))], from: &top, .down, .character("a"), yes)
        expect([.act(.set(GrantID(high: 7, low: 2), .readWrite))], from: &top, .down, .character("a"), yes)
        expect([.act(.restore(GrantID(high: 7, low: 2)))], from: &top, .character("e"), yes)
    }

    @Test("`top` refuses a senseless key with a message")
    func whatMakesNoSenseIsNotAsked() throws {
        var top = Top(try snapshot())
        expect([], from: &top, .character("r"))
        #expect(top.question == nil && top.message.contains("choose one"))
        _ = top.hit(.down, .character("e"))
        #expect(top.question == nil && top.message.contains("is not revoked"))
        _ = top.hit(.down, .character("r"))
        #expect(top.question == nil && top.message.contains("is revoked already"))
        _ = top.hit(.end, .character("u"))
        #expect(top.question == nil && top.message.contains("not mounted"))
        var empty = Top(TopSnapshot(time: 1, sections: []))
        expect([], from: &empty, .character("r"), .down, .character("u"))
        #expect(empty.question == nil)
    }

    @Test("`top` keeps its selection across sorting and changes")
    func whatIsSelectedStaysSoWhereverItGoes() throws {
        var top = Top(try snapshot())
        _ = top.hit(.down, .down)
        #expect(top.current?.grant == GrantID(high: 7, low: 2))
        _ = top.hit(.character("s"))
        #expect(top.current?.grant == GrantID(high: 7, low: 2))
        let extra = try row("aaa", number: 9)
        top.handle(.seen(try snapshot { $0[0].grants.insert(extra, at: 0) }))
        #expect(top.current?.grant == GrantID(high: 7, low: 2))
        top.handle(.seen(try snapshot { $0[0].grants.removeLast() }))
        #expect(top.current != nil)
    }

    @Test("`top` sorts the grants")
    func grantsAreSorted() throws {
        var top = Top(
            try snapshot {
                $0[0].grants[1].inodes = 9
                $0[0].grants[0].operations = 2
            })
        top.handle(
            .seen(
                try snapshot(seconds: 11) {
                    $0[0].grants[1].inodes = 9
                    $0[0].grants[0].operations = 12
                }))
        let names = { (top: Top) in top.rows.prefix(3).compactMap { top.row(of: $0)?.name.description } }
        #expect(names(top) == ["alpha", "beta"])
        _ = top.hit(.character("s"), .character("s"))
        #expect(top.order == .inodes && names(top) == ["beta", "alpha"])
        _ = top.hit(.character("s"))
        #expect(top.order == .operations && names(top) == ["alpha", "beta"])
    }

    @Test("`top` shows a silent mount from its record")
    func aMountThatDoesNotAnswerIsShownWithWhatIsOnRecord() throws {
        let top = Top(
            try snapshot {
                $0[0].unresponsiveReason = "no answer within the time"
                for index in $0[0].grants.indices { $0[0].grants[index].isLive = false }
            })
        #expect(top.line("default").contains("! does not answer: no answer within the time"))
        #expect(top.line("beta").contains("revoked ?"))
    }

    @Test("`top` names the holders of the selected grant by its whole name")
    func whoHoldsAGrantIsToldByTheWholeName() throws {
        var top = Top(try snapshot())
        #expect(top.page.contains("2 processes hold something of “default”"))
        _ = top.hit(.down)
        #expect(top.page.contains("1 process holds “alpha”") && top.line("5 sh").contains("fd, cwd  /m/alpha/x  and 1 more"))
        _ = top.hit(.down)
        #expect(top.page.contains("Nobody holds “beta”"))
    }

    @Test("`top` keeps the last snapshot and reports an unreadable store")
    func aStoreThatCannotBeReadLeavesWhatWasSeenAndSaysSo() throws {
        var top = Top(try snapshot())
        top.handle(.failed("the store is damaged"))
        _ = top.hit(.down)
        #expect(top.page.contains("! the store is damaged") && top.page.contains("alpha"))
        top.handle(.seen(try snapshot()))
        #expect(!top.page.contains("damaged"))
    }

    @Test("`?` in `top` shows the help and `q` quits")
    func helpAndTheEnd() throws {
        var top = Top(try snapshot())
        _ = top.hit(.character("?"))
        #expect(top.page.contains("keys"))
        expect([], from: &top, .character("q"))
        expect([.quit], from: &top, .character("q"))
        expect([.quit], from: &top, .character("u"), .control("c"))
    }

    @Test(
        "`top` fits on any screen",
        arguments: [Size(rows: 24, columns: 80), Size(rows: 10, columns: 40), Size(rows: 60, columns: 200), Size(rows: 1, columns: 1)])
    func nothingIsWiderOrHigherThanTheScreen(_ size: Size) throws {
        let long = String(repeating: "日本-", count: 30)
        let extra = try (10..<60).map { try row("\(long)\($0)", number: $0) }
        var top = Top(
            try snapshot {
                $0[0].grants += extra
                $0[0].mountpoint = Array("/\(long)".utf8)
            }, size: size)
        for keys in [[Key.down], [.character("r")], [.escape, .end], [.up, .character("?")]] {
            for key in keys { _ = top.handle(key) }
            let frame = top.frame(size)
            #expect(frame.lines.count <= size.rows && frame.lines.allSatisfy { $0.width <= size.columns })
        }
        #expect(top.text().contains("59"))
    }
}
