import Foundation
import Glibc
import TestSupport
import Testing

extension GrantPortalTests {
    /// What `Calls` and `InASandbox` do not have: messages that do not fit together, and services that go.
    @Suite struct BadInput {
        private let app = "org.test.App"

        @Test(
            "A malformed call is refused and the next call is answered"
        )
        func malformed() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let papers = (file as NSString).deletingLastPathComponent
            let long = String(repeating: "n", count: 300)
            for attempt in 0..<5 {
                let client = try session.another()
                // The bus may cut off the sender of an inconsistent message.
                let answer =
                    switch attempt {
                    case 0: try client.call("Add", "(hbb)", [7, true, true])
                    case 1: try client.call("AddFull", "(ahusas)", [[0, 9], 3, "", [String]()], open: [file])
                    case 2: try client.call("AddNamed", "(haybb)", [0, ["path": long], true, true], open: [papers])
                    case 3: try client.call("GetHostPaths", "(as)", [(0..<20_000).map { "\($0)" }])
                    default: try client.call("GetHostPaths", "(as)", [(0..<1000).map { "\($0)" }])
                    }
                #expect((answer.error != nil) == (attempt < 4), "\(attempt): \(answer)")
            }
            #expect(try session.another().call("GetMountPoint").texts == [session.mountpoint])
            #expect(try session.fixture.list("--all").isEmpty && FileManager.default.contentsOfDirectory(atPath: papers) == ["report.txt"])
        }

        @Test(
            "The portal gives out nothing new while the permission store is gone"
        )
        func storeGone() throws {
            let session = try PortalSession.started()
            let (file, host) = (try session.file(), try session.host)
            let id = try host.addFull([file], app: app, ["read", "write"]).id
            let path = "\(session.view(of: app))/\(id)/report.txt"
            try session.endStore()
            let refused = try host.addFull([try session.file("other")], app: app, ["read"])
            #expect(refused.error == "Failed", "\(refused)")
            #expect(try session.fixture.list().allSatisfy { $0.name == id })
            #expect(try host.call("RevokePermissions", "(ssas)", [id, app, ["write"]]).error == "Failed")
            #expect(try host.write(path, "x").errno == "EROFS" && host.read(path).texts == ["old\n"])
            try session.startStore()
            // It has the old permissions: they are not believed.
            try session.store("SetPermission", "(sbssas)", ["documents", false, id, "org.other.App", ["read"]])
            try session.fixture.wait(until: "it was told") { try session.permissions(of: id)?[app] == ["read"] }
            #expect(try host.write(path, "x").errno == "EROFS")
        }

        @Test("The portal ends in order when the bus goes with calls in progress")
        func busGoneUnderLoad() throws {
            let session = try PortalSession.started()
            let (file, host) = (try session.file(), try session.host)
            let kept = try host.add(file).id
            let client = try session.another()
            try client.begin(["burst": (0..<500).map { _ in PortalClient.request("Add", "(hbb)", [0, false, false], open: [file]) }])
            usleep(200_000)
            session.endBus()
            #expect(try #require(session.portal).wait(within: 60) == 1)
            #expect(!session.fixture.mountpoints.contains(session.mountpoint))
            let left = try session.fixture.list("--all").map(\.name)
            #expect(left == [kept], "\(left)")
        }
    }
}
