import Foundation
import Glibc
import TestSupport
import Testing

/// `grantfs volume-plugin`, called by the protocol that engines speak. `.ci/engines` runs Docker and Podman.
extension MountTests {
    @Suite struct VolumePlugin {
        let fixture: MountFixture
        let data: String
        let socket: String
        let plugin: Running

        /// The plugin's process, which a test may replace.
        final class Running {
            var process: Child
            init(_ process: Child) { self.process = process }
            deinit { process.kill() }
        }

        struct Answer: Decodable {
            struct Volume: Decodable {
                struct Status: Decodable {
                    let view: String
                    let grants: [GrantDocument]
                }
                let name: String
                let status: Status?

                enum CodingKeys: String, CodingKey {
                    case name = "Name"
                    case status = "Status"
                }
            }
            let error: String
            let mountpoint: String?
            let volume: Volume?
            let volumes: [Volume]?

            enum CodingKeys: String, CodingKey {
                case error = "Err"
                case mountpoint = "Mountpoint"
                case volume = "Volume"
                case volumes = "Volumes"
            }
        }

        init() throws {
            fixture = try MountFixture()
            data = try fixture.source("data")
            try "content\n".write(toFile: data + "/file", atomically: false, encoding: .utf8)
            socket = fixture.base + "/plugin.sock"
            plugin = Running(try VolumePlugin.start(fixture, socket))
        }

        static func start(_ fixture: MountFixture, _ socket: String, _ program: String = Programs.grantfs) throws -> Child {
            let process = try Child(
                [program, "volume-plugin", "--socket", socket], environment: fixture.environment, separateErrors: true)
            try fixture.wait(until: "the plugin answers") { try post(socket, "Plugin.Activate", "").status == 0 }
            return process
        }

        static func post(_ socket: String, _ call: String, _ body: String, as identity: Identity = .current) throws -> Output {
            try Command.run(
                ["curl", "-sS", "--max-time", "60", "--unix-socket", socket, "-X", "POST", "--data-binary", body, "http://plugin/\(call)"],
                as: identity)
        }

        /// Kills the plugin and starts it again.
        func restart() throws {
            plugin.process.kill()
            plugin.process = try VolumePlugin.start(fixture, socket)
        }

        func call(_ call: String, _ members: [String: Any]) throws -> Answer {
            let body = String(decoding: try JSONSerialization.data(withJSONObject: members), as: UTF8.self)
            return try JSONDecoder().decode(Answer.self, from: Data(VolumePlugin.post(socket, "VolumeDriver." + call, body).text.utf8))
        }

        /// Fails if the plugin refuses.
        @discardableResult
        func done(_ name: String, _ volume: String, _ more: [String: Any] = [:]) throws -> Answer {
            let answer = try call(name, ["Name": volume].merging(more) { $1 })
            if !answer.error.isEmpty { throw TestFailure("\(name) \(volume): \(answer.error)") }
            return answer
        }

        func create(_ volume: String, _ options: [String: String] = [:]) throws { try done("Create", volume, ["Opts": options]) }

        func refusal(of volume: String, _ options: [String: String]) throws -> String {
            try call("Create", ["Name": volume, "Opts": options]).error
        }

        func names() throws -> [String] { try call("List", [:]).volumes?.map(\.name) ?? [] }

        func read(_ path: String) -> Int32 {
            let file = open(path, O_RDONLY | O_CLOEXEC)
            if file < 0 { return errno }
            defer { close(file) }
            var byte: UInt8 = 0
            return Glibc.read(file, &byte, 1) < 0 ? errno : 0
        }

        @Test("A volume is a view, mounted while it has users")
        func life() throws {
            #expect(try VolumePlugin.post(socket, "Plugin.Activate", "").text.contains(#""Implements":["VolumeDriver"]"#))
            #expect(try VolumePlugin.post(socket, "VolumeDriver.Capabilities", "{}").text.contains(#""Scope":"local""#))
            try create("one", ["path": data, "ttl": "2h", "hide": ".env,*.key", "name": "files"])
            let status = try #require(try done("Get", "one").volume?.status)
            #expect(status.view == "one" && status.grants.map(\.name) == ["files"] && status.grants[0].expires != nil)
            #expect(try fixture.grantfs("list", "--view", "one").orThrow().text.contains("hide 2"))
            #expect(try done("Path", "one").mountpoint == "")

            let place = try #require(try done("Mount", "one", ["ID": "a"]).mountpoint)
            #expect(try done("Mount", "one", ["ID": "b"]).mountpoint == place && done("Path", "one").mountpoint == place)
            #expect(try names() == ["one"])
            let held = open(place + "/files/file", O_RDONLY | O_CLOEXEC)
            defer { close(held) }
            let more = try fixture.source("more")
            try fixture.grantfs("grant", "--view", "one", more).orThrow()
            #expect(access(place + "/more", F_OK) == 0)
            try fixture.grantfs("revoke", "--view", "one", "files").orThrow()
            var byte: UInt8 = 0
            #expect(pread(held, &byte, 1, 0) < 0 && errno == EACCES && read(place + "/files/file") == EACCES)

            try done("Unmount", "one", ["ID": "a"])
            #expect(try done("Path", "one").mountpoint == place)
            try done("Unmount", "one", ["ID": "a"])
            #expect(try done("Path", "one").mountpoint == place)
            close(held)
            try done("Unmount", "one", ["ID": "b"])
            #expect(
                try done("Path", "one").mountpoint == "" && fixture.grantfs("status", "--json").orThrow().text.contains("\"mounts\":[]"))
            try done("Remove", "one")
            #expect(try names().isEmpty && fixture.list("--all").isEmpty)
        }

        @Test(
            "Files of a volume have the owners of a map",
            .enabled(
                if: Identity.isRoot && Machine.mapsOwners && Command.exists("bindfs"),
                "needs root, bindfs and a filesystem that maps owners"))
        func owners() throws {
            chown(data + "/file", 33, 34)
            try create("one", ["path": data, "map": "0:100000:1000", "map-groups": "0:200000:1000"])
            let place = try #require(try done("Mount", "one", ["ID": "a"]).mountpoint)
            #expect(try Command.run(["stat", "-c", "%u:%g", place + "/data/file"]).orThrow().text == "100033:200034\n")
            let other = try fixture.source("other")
            try fixture.mountOther(["bindfs", try fixture.directory("behind")], at: other)
            let refused = try refusal(of: "two", ["path": other, "map": "0:100000:1000"])
            #expect(refused.contains("cannot have other owners") && refused.contains("its filesystem cannot do that"), "\(refused)")
            #expect(try names() == ["one"])
        }

        @Test("A volume of a view shows it and leaves its grants")
        func ofView() throws {
            #expect(try refusal(of: "two", ["view": "ci"]).contains("view “ci”"))
            try fixture.grantfs("grant", "--view", "ci", data).orThrow()
            try create("two", ["view": "ci"])
            let place = try #require(try done("Mount", "two", ["ID": "a"]).mountpoint)
            #expect(read(place + "/data/file") == 0)
            try done("Unmount", "two", ["ID": "a"])
            try done("Remove", "two")
            #expect(try fixture.list("--view", "ci").count == 1)
            let refused = try refusal(of: "ci", [:])
            #expect(refused.contains("the view “ci” cannot be this volume's") && refused.contains("it has grants"), "\(refused)")
            try create("own")
            #expect(try refusal(of: "other", ["view": "own"]).contains("it ends with the volume “own”"))
        }

        @Test(
            "Options and names that make no sense are refused, and leave nothing",
            arguments: [
                (["colour": "red"], "unknown option “colour”"), (["path": "relative"], "not an absolute path"),
                (["path": "/nowhere/at/all"], "there is no such directory"), (["path": "/srv", "view": "ci"], "either path or view"),
                (["container": "a", "view": "ci"], "has a view of its own"),
                (["map": "0:1"], "“0:1” is not three numbers"), (["map-groups": "0:1:1"], "needs “map”"),
                (["ttl": "2h"], "for the directory of path"), (["ro": "true"], "for the directory of path"),
                (["path": "BASE", "ttl": "soon"], "invalid time span"),
                (["path": "BASE", "ro": "perhaps"], "“ro” has no value but"), (["path": "BASE", "hide": "#x"], "#x"),
                (["path": "BASE", "name": "a/b"], "invalid name “a/b”"), (["path": "STORE"], "cannot be granted"),
                (["view": ""], "invalid view"),
            ])
        func nonsense(_ options: [String: String], _ reason: String) throws {
            let options = options.mapValues { $0 == "BASE" ? data : $0 == "STORE" ? fixture.store : $0 }
            #expect(try refusal(of: "bad", options).contains(reason))
            #expect(try names().isEmpty && fixture.list("--all").isEmpty)
            try create("bad", ["path": data])
        }

        @Test(
            "Names that engines do not give are refused",
            arguments: ["", "../up", "a/b", "-a", ".a", "a b", "ä", "default", "app", "run-1"])
        func name(_ name: String) throws {
            #expect(try !refusal(of: name, ["path": data]).isEmpty)
            for call in ["Get", "Mount", "Unmount", "Path", "Remove"] {
                #expect(try !self.call(call, ["Name": name, "ID": "a"]).error.isEmpty)
            }
            #expect(try !refusal(of: String(repeating: "a", count: 129), [:]).isEmpty)
            #expect(try names().isEmpty && fixture.list("--all").isEmpty)
        }

        @Test("A second volume of a name has the same options or is refused")
        func again() throws {
            try create("one", ["path": data])
            try create("one", ["path": data])
            #expect(try refusal(of: "one", ["path": data, "ro": "1"]).contains("with other options"))
            #expect(try fixture.list("--all").count == 1)
        }

        @Test("Bad calls are refused by an answer")
        func calls() throws {
            let bodies = ["", "{", "[]", #"{"Name":7}"#, #"{"Name":"a","Opts":[]}"#, #"{"Name":"a","Opts":{"ro":1}}"#]
            for body in bodies { #expect(try VolumePlugin.post(socket, "VolumeDriver.Create", body).text.contains(#""Err":""#)) }
            #expect(
                try VolumePlugin.post(socket, "VolumeDriver.Create", #"{"Name":"a","Opts":{"ro":"1","ro":"0"}}"#).text.contains("twice"))
            #expect(try VolumePlugin.post(socket, "VolumeDriver.Destroy", "{}").text.contains("there is no call"))
            let huge = #"{"Name":""# + String(repeating: "a", count: 70_000) + #""}"#
            #expect(try !VolumePlugin.post(socket, "VolumeDriver.Create", huge).text.contains("Mountpoint"))
            let get = try Command.run(["curl", "-sS", "--unix-socket", socket, "http://plugin/VolumeDriver.List"])
            #expect(get.text.contains("POST"))
            #expect(try names().isEmpty)
        }

        @Test("Only root and the plugin's own user may connect", .enabled(if: Identity.isRoot, "needs root"))
        func others() throws {
            let user = try #require(Machine.plainUser)
            try create("one", ["path": data])
            #expect(try VolumePlugin.post(socket, "VolumeDriver.List", "{}", as: user).status != 0)
            chmod(socket, 0o777)
            let refused = try VolumePlugin.post(socket, "VolumeDriver.List", "{}", as: user)
            #expect(
                refused.status == 0 && refused.text.contains("only root may connect") && !refused.text.contains("Volumes"), "\(refused)")
        }

        @Test("Volumes are made, mounted and removed at the same time")
        func atOnce() throws {
            let names = (0..<12).map { "volume-\($0)" }
            let script = """
                call() { curl -sS --unix-socket '\(socket)' -X POST --data-binary "$2" http://plugin/VolumeDriver.$1; echo; }
                for name in \(names.joined(separator: " ")); do
                    (call Create '{"Name":"'$name'","Opts":{"path":"\(data)"}}'; call Mount '{"Name":"'$name'","ID":"a"}'
                     cat '\(fixture.store)'/run/volumes/$name/data/file
                     call Unmount '{"Name":"'$name'","ID":"a"}'; call Remove '{"Name":"'$name'"}') &
                done
                wait
                """
            let output = try Command.run(["sh", "-c", script])
            #expect(output.text.components(separatedBy: "content").count == 13, "\(output.text)\(output.errors)")
            #expect(output.text.components(separatedBy: #""Err":"""#).count == 49, "\(output.text)")
            #expect(try self.names().isEmpty && fixture.list("--all").isEmpty)
        }
    }
}
