import GrantModel
import GrantStore
import Testing

@testable import GrantAdministration

@Suite struct RunReportTests {
    private let run = Actor(uid: 0, pid: 100, program: "grantfs")
    private let person = Actor(uid: 0, pid: 200, program: "grantfs")

    /// What the report says of an offered directory, after these changes of its grant.
    private func offer(_ change: (GrantStore, GrantID) throws -> Void) throws -> RunReport.Granted {
        let bench = try Bench()
        let store = bench.administrator.store
        var grant = try bench.grant("docs")
        try store.remove([grant.id], by: person)
        grant.view = try ViewName("run-0123456789abcdef")
        grant.isOffered = true
        try store.insert(grant, by: run)
        try store.append(.mounted, view: grant.view, by: run)
        try change(store, grant.id)
        return try #require(try RunReport.find(nil, in: store).granted(grant.name))
    }

    @Test("An offer counts as allowed only for as long as the run, and with its last access")
    func offers() throws {
        let none = try offer { _, _ in }
        #expect(none.isOffered && !none.isAllowed)
        let allowed = try offer { _ = try $0.update($1, access: .readWrite, by: run) }
        #expect(allowed.isAllowed && allowed.access == .readWrite)
        let limited = try offer { _ = try $0.update($1, access: .readWrite, expires: .some(Instant(seconds: 1 << 40)), by: run) }
        #expect(!limited.isAllowed)
        let narrowed = try offer {
            _ = try $0.update($1, access: .readWrite, by: run)
            _ = try $0.update($1, access: .readOnly, by: person)
        }
        #expect(narrowed.isAllowed && narrowed.access == .readOnly)
        let revoked = try offer {
            _ = try $0.update($1, access: .readWrite, by: run)
            _ = try $0.revoke([$1], by: person)
        }
        #expect(!revoked.isAllowed)
        let ended = try offer {
            _ = try $0.update($1, access: .readOnly, by: run)
            _ = try $0.revoke([$1], by: run)
        }
        #expect(ended.isAllowed && ended.access == .readOnly)
    }
}
