import TestSupport
import Testing

/// The administrator's policy, for a program that grants by the library:
/// docs/Examples/DirectoryList.
@Suite(.enabled(if: Identity.isRoot, "needs root")) struct ThePolicyOfTheMachine {
    private let machine: PolicyMachine
    private var base: String { machine.fixture.base }

    init() throws { machine = try PolicyMachine() }

    private func add(_ path: String) throws -> Output {
        try machine.run([Programs.directoryList, base + "/list", "add", base + path])
    }

    @Test("The library refuses directories that the policy never grants")
    func never() throws {
        try machine.write("never = [\"{}/srv/secret\"]\n")
        for path in ["/srv/secret", "/srv"] {
            let output = try add(path)
            #expect(output.status == 1 && output.errors.contains("is never granted"), "\(output)")
        }
        try add("/srv/projects").orThrow()
        #expect(try machine.fixture.list("--all").map(\.name) == ["projects"])
    }

    @Test("The library grants no directory while the policy is unreadable")
    func broken() throws {
        try machine.write("nonsense\n")
        let output = try add("/srv/projects")
        #expect(output.status == 1 && output.errors.contains("10-site.toml"), "\(output)")
        try machine.write("")
        try add("/srv/projects").orThrow()
    }
}
