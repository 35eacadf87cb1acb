import Foundation

/// A running attack on the machinery of a mount: see Tests/Attacker. It ends with the value.
public final class Attack {
    private let child: Child
    public var pid: Int32 { child.pid }

    /// Returns when the attack holds what it is to hold.
    public init(_ name: String, _ arguments: [String], as identity: Identity = .current) throws {
        child = try Child([Programs.attacker(for: identity), name] + arguments, identity: identity)
        try child.expect("ready")
    }

    /// A line of what it finds.
    public func line(within seconds: Double = 60) -> String? { child.line(within: seconds) }
    public func send(_ line: String) { child.send(line) }

    /// Ends it at once, whatever it holds.
    public func end() { child.kill() }
}
