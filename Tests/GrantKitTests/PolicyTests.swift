import Foundation
import GrantModel
import TestSupport
import Testing

@testable import GrantKit

/// What the administrator says of who may grant what, for programs that use the library.
@Suite(.enabled(if: Identity.isRoot, "needs root")) struct ThePolicyOfTheMachine {
    @Test("binds a program that grants by the library: what is never granted, and what holds it, is refused and leaves no grant")
    func never() throws {
        let machine = try PolicyMachine()
        try machine.write("never = [\"{}/srv/secret\"]\n")
        let (base, store) = (machine.fixture.base, machine.fixture.store)
        let said = try machine.here {
            GrantEnvironment.$current.withValue(GrantEnvironment(store: store)) {
                ["/srv/secret", "/srv", "/srv/projects"].map { path -> String in
                    do throws(GrantError) {
                        return try GrantedDirectory.grant(URL(fileURLWithPath: base + path, isDirectory: true)).grant.name.description
                    } catch {
                        return "\(error.code): \(error)"
                    }
                }
            }
        }
        #expect(said[0].hasPrefix("permission") && said[0].contains("is never granted"), "\(said)")
        #expect(said[1].hasPrefix("permission") && said[1].contains("is never granted"), "\(said)")
        #expect(said[2] == "projects")
        #expect(try machine.fixture.list("--all").map(\.name) == ["projects"])
    }

    @Test("that cannot be read refuses every grant")
    func broken() throws {
        let machine = try PolicyMachine()
        try machine.write("nonsense\n")
        let (base, store) = (machine.fixture.base, machine.fixture.store)
        let isGranted = try machine.here {
            GrantEnvironment.$current.withValue(GrantEnvironment(store: store)) {
                (try? GrantedDirectory.grant(URL(fileURLWithPath: base + "/srv/projects", isDirectory: true))) != nil
            }
        }
        #expect(!isGranted)
    }
}
