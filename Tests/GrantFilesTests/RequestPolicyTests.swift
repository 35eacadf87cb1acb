import GrantFiles
import GrantModel
import Testing

/// Decisions of a user about requests of programs, made in advance.
@Suite struct RequestPolicyTests {
    private func read(_ text: String) throws -> RequestPolicy {
        try RequestPolicy(Array(text.utf8), file: "policy", home: Array("/home/ann".utf8))
    }

    private func verdict(_ policy: RequestPolicy, _ path: String, _ access: Access = .readOnly) -> RequestPolicy.Verdict {
        policy.verdict(on: Array(path.utf8), access)
    }

    @Test("A request policy allows access below its directories up to its rights")
    func allows() throws {
        let policy = try read("[[allow]]\npath = \"~/src\"\naccess = \"read-only\"\n[[allow]]\npath = \"/srv/out\"\n")
        for (path, access, wanted) in [
            ("/home/ann/src", Access.readOnly, RequestPolicy.Verdict.allowed), ("/home/ann/src/x", .readOnly, .allowed),
            ("/home/ann/src/x", .readWrite, .toBeAsked), ("/home/ann/srcs", .readOnly, .toBeAsked), ("/home/ann", .readOnly, .toBeAsked),
            ("/srv/out/a", .readWrite, .allowed), ("/", .readOnly, .toBeAsked),
        ] {
            #expect(verdict(policy, path, access) == wanted, "\(path)")
        }
    }

    @Test("A denied directory is denied with its parents and children, despite any rule")
    func denies() throws {
        let policy = try read("deny = [\"~/.ssh\"]\n[[allow]]\npath = \"/\"\n")
        for path in ["/home/ann/.ssh", "/home/ann/.ssh/keys", "/home/ann", "/"] { #expect(verdict(policy, path) == .denied, "\(path)") }
        #expect(verdict(policy, "/home/ann/.sshd") == .allowed && verdict(policy, "/home/ben", .readWrite) == .allowed)
    }

    @Test(
        "An invalid request policy is refused",
        arguments: [
            "allow = 1", "[[allow]]\naccess = \"read-only\"", "deny = [\"relative\"]", "[[allow]]\npath = \"/a\"\naccess = \"all\"",
            "denies = []", "deny = [", "hide = \".env\"", "hide = [\"\"]", "hide = [\"x\"]\nprotect = [\"x\"]",
        ])
    func nonsense(text: String) {
        #expect(throws: GrantError.self) { try read(text) }
    }
}
