import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The locks and waits of a plain user below one grant are bounded and cost other grants
    /// nothing.
    @Suite(
        .enabled(if: Identity.isRoot && Machine.plainUser != nil, "needs root and a plain user"), .serialized)
    struct LockCostTests {
        private final class Place {
            let fixture: MountFixture
            let mountpoint: String
            private let bystander: Child

            init(options: String) throws {
                fixture = try MountFixture()
                for name in ["attacked", "other"] {
                    let source = try fixture.source(name)
                    chmod(source, 0o777)
                    try Data(count: 100_000).write(to: URL(fileURLWithPath: source + "/file"))
                    chmod(source + "/file", 0o666)
                    try fixture.grant(source)
                }
                mountpoint = try fixture.mount(options: "allow_other,\(options)")
                bystander = try Child([Programs.attacker, "lock-bystander", mountpoint + "/other/file", "500"])
                try bystander.expect("ready")
            }

            func attack(_ arguments: String...) throws -> Child {
                let child = try Child([Programs.attacker] + arguments, identity: #require(Machine.plainUser))
                return child
            }

            /// The least of several medians: what open, read and close in the other grant take, in microseconds.
            func microseconds() throws -> Double {
                var least = Double.infinity
                for _ in 0..<8 {
                    bystander.send("measure")
                    let numbers = try #require(bystander.line()).split(separator: " ").compactMap { Double($0) }
                    least = min(least, try #require(numbers.first))
                }
                return least
            }

            /// What the daemon takes of a processor's time, 1 for all of one. Counted by the kernel, so it does not matter who else is busy.
            func load() throws -> Double {
                let daemon = try fixture.daemon(at: mountpoint)
                func ticks() throws -> Double {
                    let fields = Processes.kernelText("/proc/\(daemon)/stat").split(separator: ")").last?.split(separator: " ") ?? []
                    return try #require(fields.count > 12 ? Double(fields[11])! + Double(fields[12])! : nil)
                }
                let (before, began) = (try ticks(), Machine.milliseconds)
                pause(milliseconds: 1500)
                return (try ticks() - before) / Double(sysconf(Int32(_SC_CLK_TCK))) / ((Machine.milliseconds - began) / 1000)
            }
        }

        private func words(_ child: Child) throws -> [Substring] { try #require(child.line(within: 120)).split(separator: " ") }

        @Test(
            "A chain of waiting locks costs other grants little time", arguments: ["shared", "none"])
        func chain(cache: String) throws {
            let place = try Place(options: "cache=\(cache)")
            let before = try place.microseconds()
            let attack = try place.attack("lock-chain", place.mountpoint + "/attacked/file", "8000")
            let held = try #require(Int(try words(attack)[1]))
            #expect(held > 4_500, "not as many as the attack takes: \(held)")
            try attack.expect("ready", within: 120)
            _ = try words(attack)
            let during = try place.microseconds()
            #expect(during < before * 3 + 50, "\(before) µs before, \(during) beside the chain")
            let load = try place.load()
            #expect(load < 0.3, "\(load) of a processor")
            // Only a waiter beyond its share is refused.
            try place.fixture.wait(until: "as many wait as may", within: 45) {
                attack.send("say")
                return try words(attack).elementsEqual(["waiting", "4096", "refused", "\(held - 1 - 4096)", "ENOLCK"])
            }
            // Another user waits for a lock in the same file and grant without extra delay.
            let file = place.mountpoint + "/attacked/file"
            let own = try Probe.role(["ranges", file, "fcntl"])
            try own.expect("ready")
            own.send("try 90000")
            try own.expect("OK")
            let other = try Probe.role(["ranges", file, "fcntl"])
            try other.expect("ready")
            other.send("wait 90000")
            try other.expect("waiting")
            own.send("free 90000")
            try own.expect("OK")
            try other.expect("OK")
            // All of them are answered when the grant goes.
            #expect(try place.fixture.revoke("attacked").allSatisfy(\.isConfirmed))
            try place.fixture.wait(until: "nobody waits any more", within: 60) {
                attack.send("say")
                return try words(attack).elementsEqual(["waiting", "0", "refused", "\(held - 1)", "EACCES"])
            }
        }

        @Test("Thousands of locked files delay no open, read or close in another grant", arguments: ["shared", "exclusive"])
        func manyFiles(cache: String) throws {
            let place = try Place(options: "cache=\(cache)")
            let before = try place.microseconds()
            let attack = try place.attack("lock-many", place.mountpoint + "/attacked", "6500")
            let held = try #require(Int(try words(attack)[1]))
            #expect(held > 4_000, "not as many as the attack takes: \(held)")
            let during = try place.microseconds()
            #expect(during < before * 3 + 50, "\(before) µs before, \(during) beside \(held) locked files")
        }

        @Test("The number of locked pieces of a file is limited")
        func pieces() throws {
            let place = try Place(options: "cache=shared")
            let file = place.mountpoint + "/attacked/file"
            let attack = try place.attack("lock-pieces", file, "20000")
            let held = try words(attack)
            let count = try #require(Int(held[1]))
            #expect(count > 16_000 && count < 16_384 && held[2] == "ENOLCK", "\(held)")
            try attack.expect("ready")
            let other = try Probe.role(["ranges", file, "fcntl"])
            try other.expect("ready")
            other.send("try 90001")
            try other.expect("OK")
            attack.send("cut")
            let cut = try words(attack)
            let pieces = try #require(Int(cut[1]))
            #expect(pieces > 16_000 && pieces < 16_384 && cut[2] == "ENOLCK", "\(cut)")
            // As many ranges can be locked as were released.
            attack.closeInput()
            #expect(attack.wait() == 0)
            let again = try place.attack("lock-pieces", file, "10000")
            #expect(try words(again) == ["held", "10000", "-"])
        }
    }
}
