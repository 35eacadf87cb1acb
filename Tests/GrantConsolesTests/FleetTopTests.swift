import GrantModel
import GrantTerminal
import Testing

@testable import GrantConsoles
@testable import GrantFleetTop
@testable import GrantFleet

private func host(_ id: String, applied: Int64, lease: Int64? = 7, registered: Int64? = 1, problems: [String: String] = [:]) -> FleetHost {
    var host = FleetHost(id: id)
    (host.applied, host.lease, host.registered, host.problems) = (applied, lease, registered, problems)
    host.labels = Labels(["role": "build"])
    return host
}

private func grant(_ name: String, _ number: UInt64, revision: Int64, isActive: Bool = true) throws -> FleetGrant {
    var grant = FleetGrant(
        id: GrantID(high: 9, low: number), view: try ViewName("ci"), name: try GrantName(chosen: Array(name.utf8)), path: "/srv/\(name)",
        access: .readWrite, hosts: .all, created: Instant(seconds: 1))
    grant.revision = revision
    if !isActive { grant = grant.revoked }
    return grant
}

/// Two hosts, one of which lags behind the second grant.
private func snapshot() throws -> FleetSnapshot {
    FleetSnapshot(
        hosts: [host("h1", applied: 20), host("h2", applied: 5), host("h3", applied: 0, lease: nil)],
        grants: [try grant("alpha", 1, revision: 4), try grant("beta", 2, revision: 12, isActive: false)], revision: 20, lease: 15,
        time: Instant(seconds: 1_000), left: ["h1": 9, "h2": 3])
}

private func top(_ snapshot: FleetSnapshot, _ size: Size = Size(rows: 24, columns: 100)) -> FleetTop {
    var top = FleetTop(delay: 2)
    top.resize(size)
    top.handle(.seen(snapshot))
    return top
}

extension FleetTop {
    fileprivate var page: String { frame(size).text }
    fileprivate func line(_ words: String) -> String { page.split(separator: "\n").first { $0.contains(words) }.map(String.init) ?? "" }
    fileprivate mutating func hit(_ keys: Key...) -> [LiveEffect<Action>] { keys.flatMap { handle($0) } }
}

@Suite struct FleetTopTests {
    @Test("The fleet console shows lagging hosts and how long they may serve")
    func saysWhoLagsAndForHowLongItMayServe() throws {
        var top = top(try snapshot())
        #expect(top.page.hasPrefix("grantfs top: 2 of 3 hosts live, 1 behind, 1 of 2 grants active"))
        #expect(top.line("  h1 ").contains("up to date") && top.line("  h1 ").contains("9 s"))
        #expect(top.line("  h2 ").contains("behind") && top.line("  h2 ").contains("5") && top.line("  h2 ").contains("12"))
        #expect(top.line("  h3 ").contains("not heard of"))
        #expect(top.line("alpha").contains("all 3") && top.line("alpha").contains("active"))
        #expect(top.line("beta").contains("1 of 3 wait") && top.line("beta").contains("revoked"))
        _ = top.hit(.end)
        #expect(top.line("may still serve it").contains("h2") && top.line("may still serve it").contains("for 4 s at the most"))
        #expect(top.page.contains("fenced: its lease is gone") && top.page.contains("withdrawn"))
        #expect(!top.text().contains("CANNOT"))
    }

    @Test("The fleet console asks before it revokes or restores")
    func asksBeforeItRevokesOrRestores() throws {
        var top = top(try snapshot())
        #expect(top.hit(.character("r")).isEmpty && top.page.contains("that is for a grant"))
        #expect(top.hit(.end, .character("r")).isEmpty && top.page.contains("is revoked already"))
        #expect(top.hit(.character("e")).isEmpty && top.page.contains("Restore “beta”"))
        #expect(top.hit(.character("n")).isEmpty && top.page.contains("nothing was changed"))
        #expect(top.hit(.character("e"), .character("y")) == [.act(.restore(GrantID(high: 9, low: 2), seen: 12))])
        #expect(top.hit(.up, .character("e")).isEmpty && top.page.contains("is not revoked"))
        #expect(top.hit(.character("r"), .character("y")) == [.act(.revoke(GrantID(high: 9, low: 1)))])
        #expect(top.page.contains("revoking “alpha”…"))
        #expect(top.hit(.character("q")) == [.quit])
    }

    @Test("The fleet console filters, hides and sorts")
    func filtersHidesAndSorts() throws {
        var top = top(try snapshot())
        _ = top.hit(.character("x"))
        #expect(top.line("beta").isEmpty && !top.line("alpha").isEmpty)
        _ = top.hit(.character("x"), .character("/"), .character("b"), .character("e"), .character("t"), .enter)
        #expect(top.line("alpha").isEmpty && !top.line("beta").isEmpty && top.line("  h1 ").isEmpty)
        _ = top.hit(.escape, .character("s"), .character("s"))
        let rows = top.page.split(separator: "\n").map(String.init)
        let places = ["  h2 ", "  h1 "].map { words in rows.firstIndex { $0.contains(words) } ?? -1 }
        #expect(places[0] < places[1] && places[0] > 0, "who lags stands first")
    }

    @Test("The fleet console escapes the control characters of hosts")
    func showsNothingOfWhatAHostSaysAsItIs() throws {
        var bad = try snapshot()
        let id = bad.grants[0].id.description
        bad = FleetSnapshot(
            hosts: [host("h1", applied: .min, problems: [id: "\u{1B}[2J\u{202E}bad"]), host("h2", applied: .max)], grants: bad.grants,
            revision: 20,
            lease: 15, time: bad.time, left: ["h1": .max])
        let top = top(bad)
        #expect(!top.page.unicodeScalars.contains("\u{1B}") && !top.text().unicodeScalars.contains("\u{202E}"))
        #expect(top.text().contains("h1: “alpha”: \\x1b[2J\\u{202e}bad"))
    }

    @Test(
        "The fleet console fits on any screen",
        arguments: [Size(rows: 24, columns: 80), Size(rows: 10, columns: 40), Size(rows: 1, columns: 1), Size(rows: 60, columns: 200)])
    func fitsOnAnyScreen(_ size: Size) throws {
        var top = top(try snapshot(), size)
        for key in [Key.down, .end, .character("?"), .character("x"), .character("e")] {
            _ = top.hit(key)
            let frame = top.frame(size)
            #expect(frame.lines.count <= size.rows && frame.lines.allSatisfy { $0.width <= size.columns })
        }
    }
}
