import Foundation
import Glibc
import TestSupport

/// A mount with one grant that has rules.
struct RuledMount {
    static let modes = ["shared", "exclusive", "none"]

    let fixture: MountFixture
    /// On the host.
    let source: String
    let mountpoint: String
    /// The same directory in the mount.
    var place: String { mountpoint + "/a" }

    /// - Parameters:
    ///   - rules: Options of `grant`.
    ///   - files: Each is made with its directories, and contains its own path. A path that ends with
    ///     a slash is a directory.
    init(_ cache: String = "shared", rules: [String], files: [String], options: String = "", in directory: String? = nil) throws {
        try self.init(try MountFixture(), cache, rules: rules, files: files, options: options, in: directory)
    }

    init(
        _ fixture: MountFixture, _ cache: String = "shared", rules: [String], files: [String], options: String = "",
        in directory: String? = nil
    ) throws {
        self.fixture = fixture
        source = try directory ?? fixture.source("a")
        for file in files { try Self.make(file, in: source) }
        try fixture.grantfs(["grant", source, "--name", "a"] + rules).orThrow()
        mountpoint = try fixture.mount(options: "cache=\(cache)" + options)
    }

    static func make(_ file: String, in source: String) throws {
        let path = source + "/" + file
        let directory = file.hasSuffix("/") ? path : String(path[..<path.lastIndex(of: "/")!])
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        if !file.hasSuffix("/") { try Data(file.utf8).write(to: URL(fileURLWithPath: path)) }
    }

    /// Changes the rules, as `grantfs set`.
    func set(_ rules: String...) throws { try fixture.grantfs(["set", "a"] + rules).orThrow() }

    /// The name of the errno of a call on paths in the grant. Words with `=` before them are kept.
    func call(_ name: String, _ arguments: String...) throws -> String {
        try Probe.call([name] + arguments.map { $0.hasPrefix("=") ? String($0.dropFirst()) : place + "/" + $0 })
    }

    func names(in directory: String = "") throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: place + "/" + directory).sorted()
    }

    func text(_ name: String) -> String? { try? String(contentsOfFile: place + "/" + name, encoding: .utf8) }
    func hostText(_ name: String) -> String? { try? String(contentsOfFile: source + "/" + name, encoding: .utf8) }
}
