import Testing
import GrantViewTree

@Suite struct AShare {
    /// Takes until it is refused. Returns the number taken.
    private func fill(_ shares: FairQuota, scope: UInt32, user: UInt32) -> Int {
        var count = 0
        while shares.reserve(scope: scope, user: user) { count += 1 }
        return count
    }

    @Test("One grant takes most of the quota and leaves room for each other grant")
    func leaving() {
        let shares = FairQuota(limit: 1700)
        // 16 parts of 17 of all but a sixty-fourth.
        #expect(fill(shares, scope: 1, user: 7) == 1575)
        #expect(!shares.hasRoom(scope: 1, user: 7) && shares.hasRoom(scope: 2, user: 7) && shares.hasRoom(scope: 2, user: 8))
        // One after the other, each takes its maximum.
        for scope in UInt32(2)..<9 { #expect(fill(shares, scope: scope, user: 100 + scope) >= 4) }
        #expect(shares.inUse < 1700)
    }

    @Test("The quota of a user leaves room for another user")
    func users() {
        let shares = FairQuota(limit: 10_000)
        for scope in UInt32(1)..<3000 { _ = fill(shares, scope: scope, user: 7) }
        let left = 10_000 - shares.inUse
        #expect(left >= 10_000 / 64 + 38 && !shares.hasRoom(scope: 5000, user: 7))
        #expect(fill(shares, scope: 4000, user: 8) >= 30)
    }

    @Test("A released share can be taken again, and a refused one takes nothing")
    func giving() {
        let shares = FairQuota(limit: 172)
        #expect(fill(shares, scope: 1, user: 1) == 160)
        #expect(fill(shares, scope: 1, user: 1) == 0 && shares.inUse == 160)
        for _ in 0..<160 { shares.release(scope: 1, user: 1) }
        #expect(shares.inUse == 0)
        #expect(fill(shares, scope: 2, user: 1) == 160)
    }

    @Test("A descriptor plan reserves descriptors for the daemon at any limit", arguments: [256, 512, 1024, 20_000, 1 << 20])
    func plans(limit: Int) {
        let plan = DescriptorPlan(limit: limit)
        #expect(limit - plan.shared - plan.workers >= 48 && plan.held < plan.shared && plan.nodes <= plan.shared / 2 && plan.workers >= 64)
    }
}
