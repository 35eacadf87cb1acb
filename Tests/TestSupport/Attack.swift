import Foundation

/// A running attack on the machinery of a mount: see Tests/Attacker. The attack ends when this
/// value is destroyed.
public final class Attack {
    private let child: Child
    public var pid: Int32 { child.pid }

    /// Returns when the attack holds its resources and has printed "ready".
    public init(_ name: String, _ arguments: [String], as identity: Identity = .current) throws {
        child = try Child([Programs.attacker(for: identity), name] + arguments, identity: identity)
        try child.expect("ready")
    }

    /// The next line that the attack prints.
    public func line(within seconds: Double = 60) -> String? { child.line(within: seconds) }
    public func send(_ line: String) { child.send(line) }

    /// Waits for its end, and returns its exit status or, negative, the signal.
    public func wait() -> Int32? { child.wait() }

    /// Kills the attack at once. Everything that it holds is released.
    public func end() { child.kill() }
}
