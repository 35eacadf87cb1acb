import Foundation
import TestSupport
import Testing

/// docs/Examples/DialogLoop, whose main thread runs GLib's main loop.
@Suite(.enabled(if: dlopen("libglib-2.0.so.0", RTLD_NOW) != nil, "GLib (libglib-2.0.so.0) is not installed"))
struct TheDialogLoop {
    @Test(
        "A dialog, a picker and a browser work in GLib's main loop, which rests in between",
        .enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
    func life() throws {
        let fixture = try MountFixture()
        let (one, two) = (try fixture.source("one"), try fixture.source("two"))
        try Data("x".utf8).write(to: URL(fileURLWithPath: one + "/a.txt"))
        let mountpoint = try fixture.mount("dialog", isNew: true)
        let program = try Child([Programs.dialogLoop], environment: fixture.environment)
        try program.expect("directory?")
        program.send(one)
        try program.expect("documents: a.txt")
        try program.expect("directory?")
        #expect(try fixture.list("--view", "dialog").map(\.name) == ["one"])

        // Another program makes a document while the dialog is shown.
        try fixture.grantfs("coordinate", "write", mountpoint + "/one", "--", "sh", "-c", "echo > \"$GRANTFS_PATH/b.txt\"").orThrow()
        try fixture.wait(until: "it is listed") { program.line() == "documents: a.txt b.txt" }
        program.send(two)
        try fixture.wait(until: "the other directory is listed") { program.line() == "documents: " }
        #expect(Set(try fixture.list("--view", "dialog").map(\.name)) == ["one", "two"])
        try fixture.wait(until: "it asks again") { program.line() == "directory?" }
        program.send("")
        let words = try #require(program.line()).split(separator: " ")
        #expect(program.wait() == 0)
        // A loop whose descriptor stays readable serves the main actor without end.
        let turns = try #require(words.dropFirst().first.flatMap { Int($0) })
        #expect((1..<1000).contains(turns) && words.first == "served")
    }

    @Test("A dialog in GLib's main loop that the end of the input closes picks nothing")
    func closed() throws {
        let fixture = try MountFixture()
        let program = try Child([Programs.dialogLoop], environment: fixture.environment)
        try program.expect("directory?")
        program.closeInput()
        #expect(program.line()?.hasPrefix("served ") == true)
        #expect(program.wait() == 0)
    }
}
