import Foundation
import Glibc
import TestSupport

/// A console of a fleet, and a browser's place before it, which curl takes.
final class ConsoleFixture {
    let child: Child
    /// Without a slash at the end.
    let url: String
    let token: String?
    /// What curl is given beside.
    var options: [String] = []
    /// Curl's jar, which knows no ports, as with browsers.
    var cookies: String

    /// `log`: where its standard error goes.
    init(_ fleet: FleetFixture, _ words: [String] = [], place: String = "127.0.0.1:0", log: String? = nil) throws {
        let log = log ?? fleet.files.base + "/console.log"
        child = try Child(
            ["sh", "-c", "log=$1; shift; exec \"$@\" 2>>\"$log\"", "sh", log, Programs.grantfs, "fleet", "console", "--listen", place]
                + words,
            environment: ["GRANTFS_STORE": fleet.store("administrator")])
        guard let line = child.line(within: 60) else {
            throw TestFailure("no console: " + ((try? String(contentsOfFile: log, encoding: .utf8)) ?? ""))
        }
        let parts = line.components(separatedBy: "#token=")
        url = String(parts[0].dropLast())
        token = parts.count > 1 ? parts[1] : nil
        cookies = fleet.files.base + "/cookies-\(UUID().uuidString)"
        self.log = log
    }

    private let log: String
    var said: String { (try? String(contentsOfFile: log, encoding: .utf8)) ?? "" }
    var port: Int { Int(url.split(separator: ":").last ?? "") ?? 0 }

    struct Answer {
        let status: Int
        /// By their names, in small letters.
        let headers: [String: [String]]
        let body: String

        func decoded<Value: Decodable>(_ type: Value.Type = Value.self) throws -> Value {
            do { return try JSONDecoder().decode(type, from: Data(body.utf8)) } catch { throw TestFailure("\(error): \(status) \(body)") }
        }
    }

    /// 0 where there is no answer.
    func ask(_ path: String, _ words: String..., cookie: Bool = true) throws -> Answer {
        try ask(path, words, cookie: cookie)
    }

    func ask(_ path: String, _ words: [String], cookie: Bool = true) throws -> Answer {
        let jar = cookie ? ["--cookie", cookies] : []
        let output = try Command.run(
            ["curl", "--silent", "--include", "--max-time", "30", "--http1.1"] + jar + options + words + [
                path.hasPrefix("http") ? path : url + path
            ])
        var rest = output.text[...]
        // The line before the answer: 100 Continue.
        while rest.hasPrefix("HTTP/1.1 100") { rest = rest.range(of: "\r\n\r\n").map { rest[$0.upperBound...] } ?? "" }
        guard let end = rest.range(of: "\r\n\r\n") else { return Answer(status: 0, headers: [:], body: output.errors) }
        let lines = rest[..<end.lowerBound].components(separatedBy: "\r\n")
        var headers: [String: [String]] = [:]
        for line in lines.dropFirst() {
            let parts = line.split(separator: ":", maxSplits: 1).map(String.init)
            if parts.count == 2 { headers[parts[0].lowercased(), default: []].append(parts[1].trimmingCharacters(in: .whitespaces)) }
        }
        return Answer(status: Int(lines[0].split(separator: " ")[1]) ?? 0, headers: headers, body: String(rest[end.upperBound...]))
    }

    static func post(_ body: String, _ words: [String] = []) -> [String] {
        ["--header", "Content-Type: application/json", "--data-binary", body] + words
    }

    var origin: [String] { ["--header", "Origin: \(url)"] }

    /// Logs in. Returns the session key, which the page keeps. The cookie is in the jar.
    func logIn(_ token: String? = nil) throws -> String {
        let answer = try ask("/api/login", Self.post("{\"token\":\"\(token ?? self.token ?? "")\"}", origin + ["--cookie-jar", cookies]))
        struct Body: Decodable { let key: String }
        guard answer.status == 200 else { throw TestFailure("\(answer)") }
        return try answer.decoded(Body.self).key
    }

    func keyed(_ key: String) -> [String] { ["--header", "Grantfs-Key: \(key)"] }

    func change(_ kind: String, _ id: String, revision: Int64, key: String) throws -> Answer {
        try ask("/api/\(kind)", Self.post("{\"id\":\"\(id)\",\"revision\":\(revision)}", origin + keyed(key)))
    }

    func state(_ key: String) throws -> ConsoleState { try ask("/api/state", keyed(key)).decoded() }

    /// The state, when it is so.
    func awaitState(_ key: String, _ what: String, within seconds: Double = 60, _ isSo: (ConsoleState) -> Bool) throws -> ConsoleState {
        let deadline = Machine.milliseconds + seconds * 1000 * Machine.slowness
        while true {
            let state = try state(key)
            if isSo(state) { return state }
            guard Machine.milliseconds < deadline else { throw TestFailure("not \(what): \(state)") }
            pause(milliseconds: 50)
        }
    }
}

/// What the page is told.
struct ConsoleState: Decodable {
    struct Fleet: Decodable {
        let hosts: [Host]
        let grants: [Grant]
        let flaws: [String]
        let revision: Int64
    }
    struct Host: Decodable {
        let id: String
        let live: Bool
        let lags: Bool
        let until: Int64?
        let labels: String
        let problems: Int
        let version: String
    }
    struct Grant: Decodable {
        let id: String
        let name: String
        let path: String
        let state: String
        let revision: Int64
        let confirmed: Int
        let waiting: Int
        let gone: Int
    }
    struct Change: Decodable {
        struct Host: Decodable {
            let host: String
            let state: String
            let milliseconds: Double
        }
        let kind: String
        let id: String
        let recorded: Bool
        let over: Bool
        let failure: String?
        let hosts: [Host]
    }
    let version: String
    let failure: String?
    let fleet: Fleet?
    let changes: [Change]

    func grant(_ id: String) -> Grant? { fleet?.grants.first { $0.id == id } }
}

/// One grant on every host.
struct ConsoleStandings: Decodable {
    struct Row: Decodable {
        let host: String
        let standing: String
        let behind: Int64
        let until: Int64?
        let problem: String?
    }
    let hosts: [Row]
    func row(_ host: String) -> Row? { hosts.first { $0.host == host } }
}
