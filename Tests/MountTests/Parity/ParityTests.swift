import Foundation
import TestSupport
import Testing

/// Random scripts of system calls, the same natively and through the mount.
///
/// `GRANTFS_PARITY_SEEDS=1-500` (or `17`) chooses other scripts than those of every run, `GRANTFS_PARITY_CALLS` their length, `GRANTFS_PARITY_BESIDE` how many
/// are run beside others,
/// `GRANTFS_PARITY_SOURCES` (`host tmpfs ext4 xfs btrfs`) and `GRANTFS_PARITY_CACHES` (`shared exclusive none`) where they are run.
extension MountTests {
    @Suite(.serialized, .enabled(if: Identity.isRoot, Comment(rawValue: Machine.needsRoot)))
    struct Parity {
        @Test(
            "Random scripts of system calls give their native results in a mount",
            arguments: ParityPlan.chosen)
        func seeds(plan: ParityPlan) throws {
            let run = try ParityRun(on: plan.source, cache: plan.cache)
            for seed in plan.seeds {
                let script = plan.script(seed)
                let (difference, leaks) = try run.compare(script, revoking: true)
                #expect(leaks.isEmpty, "seed \(seed) on \(plan.source), cache=\(plan.cache), after the revocation")
                guard let difference else { continue }
                let (least, shown) = try run.shrunk(script, difference)
                Issue.record("seed \(seed) on \(plan.source), cache=\(plan.cache): \(shown)\nby\n\(least)")
            }
        }

        /// Workers act for one caller after another. The rights, groups, umask and set-id bits in
        /// force must not depend on other callers.
        @Test("A script of system calls gives its native results while other scripts run", arguments: ParityPlan.besideOthers)
        func beside(plan: ParityPlan) throws { try expectSame(plan, beside: ParityCompany.scripts) }

        @Test("A script of system calls gives its native results beside withdrawals", arguments: ParityPlan.besideOthers)
        func besideWithdrawals(plan: ParityPlan) throws { try expectSame(plan, beside: ParityCompany.withdrawals) }

        private func expectSame(_ plan: ParityPlan, beside company: ([ParityScript]) -> ParityCompany) throws {
            let run = try ParityRun(on: plan.source, cache: plan.cache)
            for seed in plan.seeds {
                let difference = try run.compare(plan.script(seed), beside: company(plan.crowd(seed))).difference
                #expect(difference == nil, "seed \(seed)")
            }
        }

        @Test("Scripts of system calls that once differed give their native results", arguments: ["shared", "exclusive", "none"])
        func kept(cache: String) throws {
            let run = try ParityRun(on: .host, cache: cache)
            for kept in KeptScript.all where kept.caches.contains(cache) {
                let difference = try run.compare(ParityScript(kept.text)).difference
                #expect(difference == nil, "\(kept.reason)")
            }
        }

        @Test("A difference of a parity script is shrunk to the calls that cause it")
        func shrinking() throws {
            let run = try ParityRun(on: .host, cache: "shared")
            // The one call that leaves the contract out of account: natively the capability shows.
            var script = ParityScript.random(seed: 1, count: 40, ParityTraits(hasHost: false))
            script.lines.insert(contentsOf: ["0 open 7 kept 66 0666", "0 hostcap kept"], at: 15)
            script.lines.append("0 islisted kept")
            let difference = try #require(try run.compare(script).difference)
            let (least, shown) = try run.shrunk(script, difference)
            #expect(least.lines == ["0 open 7 kept 66 0666", "0 hostcap kept", "0 islisted kept"], "\(shown)")
        }
    }
}

/// Which seeds are run where.
struct ParityPlan: Sendable, CustomTestStringConvertible {
    let source: ParitySource
    let cache: String
    let seeds: [UInt64]
    let count: Int

    var testDescription: String { "\(source), cache=\(cache), \(seeds.count) seeds of \(count) calls" }

    var traits: ParityTraits {
        let hasWriteBack = cache == "exclusive"
        return ParityTraits(
            hasHost: !hasWriteBack, hasZeroRange: source.hasZeroRange,
            hasPunch: source != .btrfs && (source != .ext4 || Machine.kernel >= (6, 12)),
            hasHoles: source != .tmpfs && (!hasWriteBack || source == .btrfs),
            hasExchange: source != .xfs || !hasWriteBack, hasWriteBack: hasWriteBack)
    }

    static let chosen: [ParityPlan] = {
        let environment = ProcessInfo.processInfo.environment
        guard let range = environment["GRANTFS_PARITY_SEEDS"] else { return everyRun }
        let ends = range.split(separator: "-").compactMap { UInt64($0) }
        let seeds = Array((ends.first ?? 1)...(ends.last ?? 1))
        let count = environment["GRANTFS_PARITY_CALLS"].flatMap { Int($0) } ?? 2000
        return sources(or: .host).flatMap { source in caches.map { ParityPlan(source: source, cache: $0, seeds: seeds, count: count) } }
    }()

    /// The scripts that run beside others. `GRANTFS_PARITY_BESIDE` is their number.
    static let besideOthers: [ParityPlan] = {
        let environment = ProcessInfo.processInfo.environment
        let count = environment["GRANTFS_PARITY_BESIDE"].flatMap { UInt64($0) } ?? 6
        let seeds = (1...max(1, count)).map { 5000 + $0 }
        return sources(or: .tmpfs).flatMap { source in caches.map { ParityPlan(source: source, cache: $0, seeds: seeds, count: 300) } }
    }()

    func script(_ seed: UInt64) -> ParityScript { .random(seed: seed, count: count, traits) }

    /// The other work during that script.
    func crowd(_ seed: UInt64) -> [ParityScript] {
        (1...3).map { .random(seed: seed &* 1000 + UInt64($0), count: 2 * count, traits) }
    }

    private static func words(_ name: String) -> [String]? {
        ProcessInfo.processInfo.environment["GRANTFS_PARITY_\(name)"]?.split { " ,".contains($0) }.map(String.init)
    }
    private static func sources(or usual: ParitySource) -> [ParitySource] { words("SOURCES")?.compactMap(ParitySource.init) ?? [usual] }
    private static var caches: [String] { words("CACHES") ?? ["shared", "exclusive", "none"] }

    /// Bounded: a few seconds each.
    private static let everyRun = [
        ParityPlan(source: .host, cache: "shared", seeds: Array(1...20), count: 200),
        ParityPlan(source: .tmpfs, cache: "exclusive", seeds: Array(21...30), count: 200),
        ParityPlan(source: .tmpfs, cache: "none", seeds: Array(31...40), count: 200),
        ParityPlan(source: .host, cache: "shared", seeds: [1001], count: 2000),
        ParityPlan(source: .tmpfs, cache: "exclusive", seeds: [1002], count: 2000),
    ]
}
