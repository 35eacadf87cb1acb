import Foundation
import Glibc
import TestSupport
import Testing

// Under mappings and under a full load of writers.
extension MountTests.AMandatoryClaim {
    @Test("A mandatory claim for reading blocks a store into a mapping")
    func mapping() throws {
        let (fixture, source, mount, claimant) = try mounted()
        try Data(count: 4096).write(to: URL(fileURLWithPath: source + "/m"))
        let mapper = try Child([Programs.claimProbe, "-", "map", mount + "/m"])
        try mapper.expect("mapped")
        try ask(claimant, "read \(source)")
        // Earlier stores have reached the file.
        #expect(try Data(contentsOf: URL(fileURLWithPath: source + "/m"))[0] == UInt8(ascii: "0"))
        mapper.send("1")
        #expect(mapper.line(within: 0.5) == nil)
        #expect(try Data(contentsOf: URL(fileURLWithPath: source + "/m"))[0] == UInt8(ascii: "0"))
        try ask(claimant, "end")
        try mapper.expect("stored")
        withExtendedLifetime(fixture) {}
    }

    @Test("A backup under a mandatory claim has whole files under full load")
    func backup() throws {
        let (fixture, source, mount, _) = try mounted()
        let load = try Child([Programs.claimProbe, "-", "load", mount, "6"])
        try load.expect("begun")
        // Before a writer's first write its file is empty, or not there.
        try fixture.wait(until: "all writers have written", within: 60) {
            (0..<6).allSatisfy { FileManager.default.contents(atPath: "\(source)/whole\($0)")?.count == 65_536 }
        }
        let script = """
            cd "$GRANTFS_PATH" && tar -cf "$1/one.tar" . && sleep 0.3 && tar -cf "$1/two.tar" . && cmp "$1/one.tar" "$1/two.tar"
            """
        for _ in 0..<3 {
            pause(milliseconds: 200)
            let output = try fixture.grantfs("coordinate", "read", "docs", "--", "bash", "-c", script, "bash", fixture.base, within: 120)
            #expect(output.status == 0, "\(output)")
        }
        let before = try #require(
            Int(
                {
                    load.send("count"); return load.line() ?? ""
                }()))
        try fixture.wait(until: "the writers go on", within: 60) {
            load.send("count")
            return try #require(Int(load.line() ?? "")) > before + 100
        }
        load.closeInput()
        try load.expect("0 errors []")
        // Each file that is written over by one call has one generation's bytes.
        let unpacked = try fixture.directory("unpacked")
        try Command.shell("tar -xf \"$1/one.tar\" -C \"$2\"", fixture.base, unpacked).orThrow()
        for number in 0..<6 {
            let bytes = try Data(contentsOf: URL(fileURLWithPath: "\(unpacked)/whole\(number)"))
            #expect(bytes.count == 65_536 && Set(bytes).count == 1)
        }
        withExtendedLifetime(source) {}
    }

    @Test(
        "No operation fails while mandatory claims come and go under load",
        arguments: ["shared", "exclusive"])
    func stress(cache: String) throws {
        let (fixture, source, mount, claimant) = try mounted(cache: cache)
        let load = try Child([Programs.claimProbe, "-", "load", mount, "4"])
        try load.expect("begun")
        let other = try fixture.claimant()
        for round in 0..<40 {
            try ask(claimant, round % 2 == 0 ? "write \(source)" : "read \(source)")
            other.send(round % 3 == 0 ? "write \(source)/whole1" : "read \(source)/d")
            try ask(claimant, "end")
            try other.expect("granted")
            try ask(other, "end")
        }
        load.closeInput()
        try load.expect("0 errors []")
    }
}
