import Foundation
import TestSupport
import Testing

/// The list of skipped tests in `make test` uses the same conditions as the tests.
@Suite struct ConditionTests {
    private static let script = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../.ci/test-skips").standardized.path

    @Test("`test-skips` finds the same conditions as the tests")
    func theScriptFindsWhatTheTestsFind() throws {
        func word(_ value: Bool) -> String { value ? "yes" : "no" }
        let lines = try Command.run([ConditionTests.script, "--conditions"], within: 30).orThrow().lines
        #expect(
            lines == [
                "root \(word(Identity.isRoot))", "fuse \(word(Machine.hasFUSE))", "users \(word(Machine.usersCanMount))",
                "sandboxes \(word(Machine.hasSandboxes))",
            ])
    }

    /// From the sources, so that a new condition is counted without a line of its own.
    @Test("`test-skips` reads the conditions from the test sources")
    func itReadsTheConditionsOfTheTests() throws {
        let text = try Command.run(["env", "-u", "GRANTFS_LONG_TESTS", ConditionTests.script], within: 30).orThrow().text
        #expect(text.contains("GRANTFS_LONG_TESTS is not set: "), "\(text)")
        let parts = text.split(separator: " ")
        let total = parts.firstIndex(of: "conditions,").flatMap { Int(parts[$0 - 1]) } ?? 0
        #expect(total > 200, "\(text)")
    }
}
