import Foundation
import TestSupport
import Testing

/// mount.grantfs with a stand-in for grantfs that prints its words and ends as it is told.
@Suite struct MountHelperTests {
    private func run(_ words: [String], status: Int32 = 0, in place: String = "/") throws -> (words: [String], status: Int32) {
        let directory = NSTemporaryDirectory() + "/grantfs-helper-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try Command.writeProgram("#!/bin/sh\nprintf '%s|' \"$@\"\nexit \(status)", to: directory + "/grantfs")
        let output = try Command.run(
            ["env", "--chdir", place, "/bin/sh", Programs.mountHelper] + words, environment: ["PATH": directory + ":/usr/bin:/bin"])
        return (output.text.split(separator: "|").map(String.init), output.status)
    }

    @Test(
        "The words of mount(8) are passed to `grantfs mount`",
        arguments: [
            (["v", "/d"], ["mount", "--", "v", "/d"]),
            (["v", "/d", "-o", "rw,a b"], ["mount", "--options=rw,a b", "--", "v", "/d"]),
            (["v", "/d", "-sfnv", "-o", "rw"], ["mount", "--sloppy", "--fake", "--options=rw", "--", "v", "/d"]),
            (["-n", "-o", "a", "v", "-ob", "/d", "-s"], ["mount", "--sloppy", "--options=a,b", "--", "v", "/d"]),
            (["v", "/d", "-t", "fuse.grantfs"], ["mount", "--", "v", "/d"]),
            (["-nv", "--", "-v", "/d"], ["mount", "--", "-v", "/d"]),
            (["my view", "/d\ne"], ["mount", "--", "my view", "/d\ne"]),
        ])
    func whatMountPassesReachesTheCommand(_ words: [String], _ expected: [String]) throws {
        let result = try run(words)
        #expect(result.words == expected)
        #expect(result.status == 0)
    }

    @Test("The mount helper takes the name of a file in the working directory as a view")
    func aPathIsANameAgain() throws {
        let place = NSTemporaryDirectory() + "/grantfs-helper-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: place) }
        try FileManager.default.createDirectory(atPath: place + "/my view", withIntermediateDirectories: true)
        try FileManager.default.createSymbolicLink(atPath: place + "/link", withDestinationPath: "my view/below")
        try FileManager.default.createDirectory(atPath: place + "/my view/below", withIntermediateDirectories: true)
        let real = URL(fileURLWithPath: place).resolvingSymlinksInPath().path
        for (path, name) in [("my view", "my view"), ("my view/below", "link")] {
            #expect(try run(["\(real)/\(path)", real], in: place).words == ["mount", "--", name, real])
        }
        #expect(try run([real + "/other", real], in: place).words == ["mount", "--", real + "/other", real])
    }

    @Test(
        "The mount helper refuses wrong words with status 1",
        arguments: [[], ["v"], ["v", "/d", "x"], ["v", "/d", "-q"], ["v", "/d", "-o"], ["v", "/d", "-N", "1"]])
    func wrongWordsAreRefused(_ words: [String]) throws {
        let result = try run(words)
        #expect(result.words.isEmpty)
        #expect(result.status == 1)
    }

    /// 1 means wrong words to mount(8), 32 that the mount failed.
    @Test("The mount helper maps the exit status to that of mount(8)", arguments: [(1, 32), (2, 1), (3, 32), (134, 2)] as [(Int32, Int32)])
    func theStatusIsOneThatMountKnows(_ status: Int32, _ expected: Int32) throws {
        #expect(try run(["v", "/d"], status: status).status == expected)
    }
}
