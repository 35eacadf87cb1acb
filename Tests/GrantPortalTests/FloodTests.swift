import Foundation
import Glibc
import TestSupport
import Testing

@testable import GrantPortal

extension GrantPortalTests {
    /// No caller takes everything. Each test exceeds a limit slightly while the service holds its
    /// calls, so no test depends on speed.
    @Suite(.enabled(if: Machine.offers("bwrap"), Comment(rawValue: Machine.needs("bwrap"))))
    struct Floods {
        private let app = "org.test.App"
        private let transfer = "org.freedesktop.portal.FileTransfer"
        private let limits = "org.freedesktop.DBus.Error.LimitsExceeded"

        /// The owner asks, and is answered in the time that an idle machine takes many times over.
        private func ownerIsAnswered(_ session: PortalSession, _ file: String) throws {
            let start = Machine.milliseconds
            #expect(try session.host.call("List", "(s)", [""]).error == nil)
            #expect(try session.host.call("Lookup", "(ay)", [["path": file]]).error == nil)
            #expect(Machine.milliseconds - start < 20_000 * Machine.slowness)
        }

        @Test(
            "An application with hanging files keeps two workers and its share of calls",
            .enabled(if: Identity.isRoot, "needs root"))
        func hangingFiles() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let id = try session.host.add(file).id
            let source = try HangingSource("slow", in: session.fixture)
            defer { source.end() }
            try source.file("report.txt")
            let second = try session.sandboxed("org.other.App", binding: [((file as NSString).deletingLastPathComponent, "/papers")])
            #expect(try second.add("/papers/report.txt").id == id)
            let flood = try session.inSandbox(
                app, ["/usr/bin/python3", "/impostor", "flood", "6", "/slow/report.txt", "200"], binding: [(source.directory, "/slow")])
            try flood.expect("ready")
            let (descriptors, memory) = (session.descriptors, Processes.residentKilobytes(try #require(session.portal).pid))
            try source.hang()
            flood.send("")
            // 1,024 wait and two hang. The others are refused, and none is answered.
            try flood.expect("\(limits)=\(1200 - 1024 - 2)")
            try ownerIsAnswered(session, file)
            #expect(try session.host.add(try session.file("another")).error == nil)
            #expect(try second.add("/papers/report.txt").id == id)
            #expect(session.descriptors >= descriptors + 1024)
            flood.kill()
            try session.fixture.wait(until: "its descriptors are closed") { session.descriptors < descriptors + 20 }
            source.goOn()
            try session.fixture.wait(until: "all of them are") { session.descriptors <= descriptors }
            #expect(Processes.residentKilobytes(try #require(session.portal).pid) < memory + 30_000)
            try ownerIsAnswered(session, file)
        }

        @Test(
            "A hanging file that the host does not have is refused immediately",
            .enabled(if: Identity.isRoot, "needs root"))
        func hangingFileOfItsOwn() throws {
            let session = try PortalSession.started()
            let source = try HangingSource("slow", in: session.fixture)
            defer { source.end() }
            try source.file("report.txt")
            let program = try session.sandboxed(app, binding: [(source.directory, "/slow")])
            let held = try #require(try program.ask(["hold": "/slow/report.txt"])["result"] as? Int)
            // From here on the sandbox alone has it.
            try Command.run(["umount", "--lazy", source.directory]).orThrow()
            try source.hang()
            var request = PortalClient.request("AddFull", "(ahusas)", [[0], 3, "", [String]()])
            request["open"] = [[held, 0]]
            for _ in 0..<4 { #expect(PortalAnswer(try program.ask(request, within: 10)).error == "InvalidArgument") }
        }

        @Test("An oversized message is refused before it is read")
        func largeMessages() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let program = try session.sandboxed(app)
            let before = Processes.residentKilobytes(try #require(session.portal).pid)
            for _ in 0..<2 {
                // Eight bytes each on the bus, and many times that as values.
                let large = try session.inSandbox(app, ["/usr/bin/python3", "/impostor", "large", "1000000"])
                try large.expect("ready")
                large.send("")
                try large.expect(limits)
            }
            #expect(Processes.residentKilobytes(try #require(session.portal).pid) < before + 60_000)
            let long = String(repeating: "x", count: 300_000)
            #expect(try program.call("GetHostPaths", "(as)", [[long]]).error == limits)
            let words = [String](repeating: "read", count: 4096)
            #expect(try program.call("GrantPermissions", "(ssas)", ["00000000", app, words]).error == limits)
            #expect(try program.call("GetHostPaths", "(as)", [[String](repeating: "x", count: 4000)]).error == nil)
            try ownerIsAnswered(session, file)
        }

        @Test("The largest message to the service's own connections costs one call each")
        func largestMessageToItsClients() throws {
            let session = try PortalSession.started()
            let id = try session.host.addFull([try session.file()], flags: 2, app: app, ["read"]).id
            let bus = ("org.freedesktop.DBus", "/org/freedesktop/DBus")
            func asked(_ member: String, _ signature: String, _ words: [Any]) throws -> PortalAnswer {
                try session.host.call(member, signature, words, interface: bus.0, service: bus.0, object: bus.1)
            }
            let owner = try asked("GetNameOwner", "(s)", ["org.freedesktop.portal.Documents"]).id
            let portal = try #require(session.portal).pid
            let names = try #require(try asked("ListNames", "()", []).values.first as? [String])
            var sent = 0
            for name in names where name.hasPrefix(":") && name != owner {
                let pid = try asked("GetConnectionUnixProcessID", "(s)", [name]).values.first as? Int
                guard pid == Int(portal) else { continue }
                let large = try Child(
                    ["/usr/bin/python3", session.impostor, "largest", name], identity: session.fixture.owner,
                    environment: session.fixture.environment)
                try large.expect("ready")
                large.send("")
                try large.expect("sent")
                sent += 1
            }
            #expect(sent >= 2, "its connections to the permission store and for callers")
            func give() throws -> Bool {
                try session.host.call("GrantPermissions", "(ssas)", [id, app, ["write"]]).error == nil
            }
            for _ in 0..<sent where try !give() {}
            #expect(try give() && session.permissions(of: id)?[app] == ["read", "write"])
            try session.store("SetPermission", "(sbssas)", ["documents", false, id, app, [String]()])
            try session.fixture.wait(until: "what is removed in the permission store is withdrawn") {
                text("\(session.view(of: app))/\(id)/report.txt") == nil
            }
        }

        @Test("The largest message that the bus accepts ends no service")
        func largestMessage() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let id = try session.host.addFull([file], flags: 1, app: app, ["read"]).id
            let kept = try session.host.addFull([file], app: app, ["read"]).id
            let program = try session.sandboxed(app)
            #expect(try program.call("GetHostPaths", "(as)", [[id]]).dictionary.count == 1)
            for round in 1...2 {
                let large = try session.inSandbox(app, ["/usr/bin/python3", "/impostor", "largest"])
                try large.expect("ready")
                large.send("")
                try large.expect("org.freedesktop.DBus.Error.NoReply")
                try session.fixture.wait(until: "there is another connection") {
                    session.said.components(separatedBy: "there is another one").count == round + 1
                }
                try ownerIsAnswered(session, file)
            }
            // Earlier and new callers are known, and withdrawn documents as well.
            #expect(try program.call("GetHostPaths", "(as)", [[id]]).dictionary.count == 1)
            #expect(try session.another().call("Info", "(s)", [id]).error == nil)
            #expect(text("\(session.view(of: app))/\(id)/report.txt") == "old\n")
            try session.store("SetPermission", "(sbssas)", ["documents", false, kept, app, [String]()])
            try session.fixture.wait(until: "it is withdrawn") { text("\(session.view(of: app))/\(kept)/report.txt") == nil }
        }

        @Test("An application makes up to 1,024 documents")
        func documents() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let program = try session.sandboxed(app, binding: [((file as NSString).deletingLastPathComponent, "/papers")])
            func make(_ count: Int) throws -> PortalAnswer {
                try program.call(
                    "AddFull", "(ahusas)", [[Int](repeating: 0, count: count), 0, "", [String]()], open: ["/papers/report.txt"])
            }
            var last = ""
            for _ in 0..<4 { last = try make(250).id }
            #expect(try make(25).error == limits)
            #expect(try make(24).error == nil)
            #expect(try make(1).error == limits)
            #expect(try program.call("Delete", "(s)", [last]).error == nil)
            #expect(try make(1).error == nil && make(1).error == limits)
            #expect(try session.host.addFull([file], flags: 0).error == nil)
            #expect(try session.fixture.list("--view", "app:\(app)").count == 1024)
            try ownerIsAnswered(session, file)
        }

        @Test("An application shares a document with a limited number of applications")
        func applications() throws {
            let session = try PortalSession.started()
            let program = try session.sandboxed(app)
            let id = try session.host.addFull([try session.file()], app: app, ["read", "grant-permissions"]).id
            let others = (0..<64).map { "org.other.App\($0)" }
            try program.begin(["burst": others.map { PortalClient.request("GrantPermissions", "(ssas)", [id, $0, ["read"]]) }])
            let answers = try program.answers()
            // The host and the application itself are two of them.
            #expect(answers.count { $0.error == nil } == 62 && answers.count { $0.error == limits } == 2)
            // An application that loses it leaves no room: the withdrawn grant remains.
            #expect(try program.call("RevokePermissions", "(ssas)", [id, others[0], ["read"]]).error == nil)
            #expect(try program.call("GrantPermissions", "(ssas)", [id, others[63], ["read"]]).error == limits)
            #expect(try program.call("GrantPermissions", "(ssas)", [id, others[0], ["read"]]).error == nil)
            #expect(try session.host.call("GrantPermissions", "(ssas)", [id, others[63], ["read"]]).error == nil)
        }

        @Test(
            "An application has a limited number of transfers and files")
        func transfers() throws {
            let session = try PortalSession.started()
            let file = try session.file()
            let papers = (file as NSString).deletingLastPathComponent
            let (one, two) = (
                try session.sandboxed(app, binding: [(papers, "/papers")]), try session.sandboxed(app, binding: [(papers, "/papers")])
            )
            func start(_ client: PortalClient) throws -> PortalAnswer {
                try client.call("StartTransfer", "(a{sv})", [[String: Any]()], interface: transfer, service: PortalClient.documents)
            }
            func add(_ client: PortalClient, _ key: String, _ place: String) throws -> PortalAnswer {
                try client.call(
                    "AddFiles", "(saha{sv})", [key, [Int](repeating: 0, count: 250), [String: Any]()], open: [place], interface: transfer,
                    service: PortalClient.documents)
            }
            #expect(try start(session.host).error == nil)
            let before = session.descriptors
            var keys: [String] = []
            for _ in 0..<32 {
                keys.append(try start(one).id)
                #expect(try start(two).error == nil)
            }
            #expect(try start(one).error == limits && start(two).error == limits)
            for key in keys[..<4] { #expect(try add(one, key, "/papers/report.txt").error == nil) }
            #expect(try add(one, keys[4], "/papers/report.txt").error == limits)
            let own = try start(session.host)
            #expect(try own.error == nil && add(session.host, own.id, file).error == nil)
            try ownerIsAnswered(session, file)
            one.end()
            try session.fixture.wait(until: "what it held out is let go of") { session.descriptors < before + 300 }
            let again = try start(two)
            #expect(try again.error == nil && add(two, again.id, "/papers/report.txt").error == nil)
        }
    }
}

/// The queue alone.
@Suite struct CallQueueing {
    private func call(descriptors: Int = 0) -> BusLoad { BusLoad(calls: 1, values: 1, bytes: 10, descriptors: descriptors) }

    private func queue(_ senders: [(String, CallerGroup)]) -> CallQueue<Int> {
        let queue = CallQueue<Int>()
        for (sender, group) in senders {
            #expect(queue.add(0, call(), from: sender))
            #expect(queue.nextArrival() == sender && queue.settle(sender, as: group).isEmpty)
        }
        return queue
    }

    @Test("An application has two of four workers, and the owner's calls go on")
    func workers() {
        let apps = ["a", "b", "c"].flatMap { app in (0..<3).map { (":\(app)\($0)", CallerGroup.app(app)) } }
        let queue = queue(apps)
        var busy: [String] = []
        for _ in 0..<4 { queue.next().map { busy.append($0.sender) } }
        #expect(Set(busy).count == 4 && ["a", "b", "c"].allSatisfy { app in busy.count { $0.hasPrefix(":\(app)") } <= 2 })
        // Of the applications none has another one, so the next is the owner's.
        #expect(queue.add(7, call(), from: ":owner") && queue.nextArrival() == ":owner" && queue.settle(":owner", as: .owner).isEmpty)
        let own = queue.next()
        #expect(own?.sender == ":owner" && own?.work == 7)
        queue.done(with: busy[0])
        #expect(queue.next().map { !busy[1...].contains($0.sender) } == true)
    }

    @Test(
        "A call beyond the share of its application is refused")
    func shares() {
        let most = CallerGroup.app("a").most
        let queue = queue([(":1", .app("a")), (":2", .app("a"))])
        #expect((2..<most.calls).allSatisfy { queue.add($0, call(), from: $0 % 2 == 0 ? ":1" : ":2") })
        #expect(!queue.add(0, call(), from: ":1") && !queue.add(0, call(), from: ":2"))
        #expect(queue.add(8, call(), from: ":3") && queue.add(9, call(), from: ":3"))
        #expect(queue.nextArrival() == ":3" && queue.settle(":3", as: .app("a")) == [8, 9])
        #expect(queue.forget(":1").count == most.calls / 2)
        #expect(queue.add(0, call(), from: ":3") && !queue.add(0, call(descriptors: most.descriptors + 1), from: ":3"))
        // A connection that has ended belongs to no caller, and a late answer for it has no effect.
        #expect(queue.add(1, call(), from: ":4") && queue.forget(":4") == [1] && queue.settle(":4", as: .owner).isEmpty)
    }

    @Test("The reader stops while too many calls have an unknown sender")
    func unknown() {
        let queue = CallQueue<Int>()
        for number in 0...CallerGroup.mostUnknown.calls { #expect(queue.add(number, call(), from: ":\(number % 7)")) }
        #expect(queue.isFull)
        for _ in 0..<7 { queue.nextArrival().map { _ = queue.settle($0, as: .owner) } }
        #expect(!queue.isFull)
    }
}
