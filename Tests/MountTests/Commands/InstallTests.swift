import Foundation
import TestSupport
import Testing

extension MountTests {
    /// `make install` under a umask of the administrator's.
    @Suite(.enabled(if: Command.exists("make"), "there is no make")) struct Installation {
        @Test("`make install` sets every mode under any umask", arguments: ["000", "077"])
        func modes(umask: String) throws {
            let fixture = try MountFixture()
            let checkout = URL(fileURLWithPath: #filePath).appendingPathComponent("../../../..").standardized.path
            let root = fixture.base + "/root"
            let left = root + "/usr/local/share/bash-completion/completions"
            try Command.shell("mkdir -p \"$1\" && touch \"$1/grantfs\" && chmod 666 \"$1/grantfs\"", left).orThrow()
            let program = Programs.grantfs
            try Command.shell(
                "umask \"$1\"; make -C \"$2\" -o \"$3\" program=\"$3\" DESTDIR=\"$4\" install", umask, checkout, program, root
            ).orThrow()
            let modes = try Command.run(["find", root, "!", "-type", "l", "-printf", "%y %m\n"]).orThrow().lines
            #expect(Set(modes) == ["d 755", "f 644", "f 755"])
            for name in ["grantfs"] + Programs.companions.map({ ($0 as NSString).lastPathComponent }) where !name.contains("-faults") {
                #expect(access(root + "/usr/local/bin/" + name, X_OK) == 0, "\(name)")
            }
        }

        @Test("The shipped programs have no switches for tests")
        func switches() throws {
            for program in [Programs.grantfs] + Programs.companions where !program.contains("-faults") {
                let contents = try Data(contentsOf: URL(fileURLWithPath: program), options: .alwaysMapped)
                #expect(contents.range(of: Data("GRANTFS_TEST".utf8)) == nil, "\(program)")
            }
            let faulty = try Data(contentsOf: URL(fileURLWithPath: Programs.grantfsWithFaults), options: .alwaysMapped)
            #expect(faulty.range(of: Data("GRANTFS_TEST".utf8)) != nil)
        }
    }
}
