import Foundation
import Glibc

/// The error that a test reports when a step it needs failed.
public struct TestFailure: Error, CustomStringConvertible {
    public let description: String
    public init(_ description: String) { self.description = description }
}

/// The result of a command that ran to its end.
public struct Output: Sendable, CustomStringConvertible {
    public let command: [String]
    /// The exit status, or minus the signal.
    public let status: Int32
    public let bytes: [UInt8]
    public let errors: String
    public let seconds: Double

    public init(command: [String], status: Int32, bytes: [UInt8], errors: String, seconds: Double) {
        (self.command, self.status, self.bytes, self.errors, self.seconds) = (command, status, bytes, errors, seconds)
    }

    public var text: String { String(decoding: bytes, as: UTF8.self) }
    public var trimmed: String { text.trimmingCharacters(in: .whitespacesAndNewlines) }
    public var lines: [String] { text.split(separator: "\n").map(String.init) }
    public var description: String { "\(command.joined(separator: " ")) → \(status)\n\(text)\(errors)" }

    /// This value if the status is 0. Otherwise throws an error with the command's output.
    @discardableResult
    public func orThrow() throws -> Output {
        guard status == 0 else { throw TestFailure(description) }
        return self
    }

    public func decoded<Value: Decodable>(as type: Value.Type = Value.self) throws -> Value {
        do {
            return try JSONDecoder().decode(type, from: Data(bytes))
        } catch {
            throw TestFailure("not the JSON that was promised (\(error)): \(self)")
        }
    }
}

/// Sleeps. For conditions that have no event to wait for.
public func pause(milliseconds: Int) { usleep(useconds_t(milliseconds * 1000)) }

public enum Command {
    /// Runs a command to its end. After `seconds` its process group is killed and the test fails.
    @discardableResult
    public static func run(
        _ command: [String], as identity: Identity = .current, environment: [String: String] = [:], input: String? = nil,
        within seconds: Double = 180
    ) throws -> Output {
        let start = Machine.milliseconds
        let child = try Child(command, identity: identity, environment: environment, separateErrors: true)
        if let input { child.send(input) }
        child.closeInput()
        guard let collected = child.collect(within: seconds), let status = child.wait(within: 30) else {
            child.kill()
            throw TestFailure("still running after \(seconds) s: \(command.joined(separator: " "))")
        }
        return Output(
            command: command, status: status, bytes: collected.output, errors: String(decoding: collected.errors, as: UTF8.self),
            seconds: (Machine.milliseconds - start) / 1000)
    }

    /// Runs a shell script with `set -eu`. Its arguments are `$1`, `$2` and so on.
    @discardableResult
    public static func shell(
        _ script: String, _ arguments: String..., as identity: Identity = .current, within seconds: Double = 180
    ) throws -> Output {
        try run(["bash", "-euc", script, "bash"] + arguments, as: identity, within: seconds)
    }

    /// Writes an executable program for all users, in a shell or another interpreter. Another process writes it. A child that another test
    /// starts meanwhile would inherit a descriptor of this process, and execve(2) of a file open for writing fails with ETXTBSY.
    public static func writeProgram(_ text: String, to path: String) throws {
        try shell(#"printf '%s\n' "$2" >"$1" && chmod 755 "$1""#, path, text).orThrow()
    }

    public static func exists(_ program: String) -> Bool {
        (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin").split(separator: ":")
            .contains { access("\($0)/\(program)", X_OK) == 0 }
    }
}
