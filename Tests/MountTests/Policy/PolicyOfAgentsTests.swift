import Foundation
import TestSupport
import Testing

extension MountTests.Policy {
    @Test("The administrator's policy overrides the rules of an agent")
    func askedFor() throws {
        let machine = try PolicyMachine()
        let (base, ann) = (machine.fixture.base, PolicyMachine.ann)
        let home = machine.home(ann)
        try machine.write("[[allow]]\nwho = [\"ann\"]\ndirectories = [\"~/src\"]\naccess = \"read-only\"\n")
        let rules = home + "/rules.toml"
        try "[[allow]]\npath = \"\(base)\"\naccess = \"read-write\"\n".write(toFile: rules, atomically: false, encoding: .utf8)
        chown(rules, ann.uid, ann.gid)
        chmod(rules, 0o600)
        let program = try Child(
            machine.command(
                [Programs.grantfs(for: ann), "mcp", "--ask", "never", "--policy", rules], as: ann, script: "chmod 666 /dev/fuse"))
        let ask = { (path: String, access: String) throws -> String in
            let arguments = #"{"path":"\#(path)","access":"\#(access)","reason":"to build it"}"#
            program.send(
                #"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"request_directory","arguments":\#(arguments)}}"#)
            return try #require(program.line())
        }
        for (path, access) in [(base + "/srv/projects", "read-only"), (home + "/src", "read-write")] {
            let answer = try ask(path, access)
            #expect(answer.contains(#""isError":true"#) && !answer.contains("structuredContent"), "\(answer)")
        }
        let answer = try ask(home + "/src", "read-only")
        #expect(answer.contains(#""isError":false"#), "\(answer)")
        program.closeInput()
        #expect(program.wait(within: 60) == 0)
    }
}
