import Foundation
import TestSupport
import Testing

/// The picker under a policy of an administrator.
@Suite(
    .enabled(if: Machine.offers("tmux"), Comment(rawValue: Machine.needs("tmux"))),
    .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
struct PickerPolicyTests {
    @Test("The picker grants nothing while the policy refuses a choice")
    func whatNoRuleAllowsIsNotGrantedNorAnythingBesideItAndTheRestIsOnceItIsDropped() throws {
        let machine = try PolicyMachine()
        try machine.write("[[allow]]\nwho = [\"ann\"]\ndirectories = [\"~/src\"]\naccess = \"read-only\"\n")
        let home = machine.home(PolicyMachine.ann)
        try Command.shell("mkdir \"$1/other\" && chown 61001:61001 \"$1/other\"", home).orThrow()
        let words = machine.command([Programs.grantfs(for: PolicyMachine.ann), "pick", home], as: PolicyMachine.ann)
        let line = words.map { "'" + $0.replacingOccurrences(of: "'", with: "'\\''") + "'" }.joined(separator: " ")
        let terminal = try TerminalSession(line, in: machine.fixture, columns: 250, redirected: true)
        try terminal.waitFor("other/")
        try terminal.send("other", "Space", "C-u", "src", "Space", "Tab")
        try terminal.waitForReview("2 directories are to be granted")
        try terminal.send("Enter")
        try terminal.waitFor("no rule of the administrator allows “ann”")
        #expect(try machine.grantfs("list", "--json", as: PolicyMachine.ann).text.contains("[]"))
        // The permitted directory, with too many rights and with the permitted ones.
        try terminal.send("d", "Enter")
        try terminal.waitFor("allows it read-only alone")
        try terminal.send("a", "Enter")
        #expect(try terminal.status() == 0)
        let grants = try machine.grantfs("list", "--json", as: PolicyMachine.ann).orThrow().decoded(as: [GrantDocument].self)
        #expect(grants.map(\.name) == ["src"] && grants.map(\.access) == ["read-only"])
    }
}
