import GrantModel
import GrantSystem

/// The rules of one scope, and the states that its directories have.
///
/// Locking: its own, rank 2, held for a moment.
public final class ScopeRules: Sendable {
    public let rules: GrantRules
    private let program: RuleProgram
    private let table: Lock<Table>

    private struct Table {
        var states: [RuleProgram.State]
        var numbers: [RuleProgram.State: UInt32]
        var bytes = 0
    }

    /// What the rules say of a name.
    public struct Finding: Sendable {
        public var isHidden: Bool
        public var isProtected: Bool
        /// The state of the directory of that name. 0 for other files.
        public var state: UInt32 = 0

        public static let hidden = Finding(isHidden: true, isProtected: false)
    }

    /// The state of the granted directory.
    public static let top: UInt32 = 0
    /// The limits of states, which programs make with directories of certain names.
    ///
    /// A directory beyond them is hidden.
    static let mostStates: UInt32 = (1 << 20) - 1
    private static let mostBytes = 32 << 20

    /// Tells the rules of a scope from its former ones.
    public let serial: UInt32
    static let serialMask: UInt32 = (1 << 10) - 1

    init(_ rules: GrantRules, serial: UInt32) {
        self.rules = rules
        self.serial = serial & Self.serialMask
        program = RuleProgram(rules)
        table = Lock(Table(states: [program.top], numbers: [program.top: Self.top]))
    }

    /// Whether a name below a directory may be protected.
    public func mayProtect(below state: UInt32) -> Bool { program.mayProtect(below: known(state)) }

    public var protects: Bool { program.protects }

    /// Whether directories were found that have another state than the granted one.
    public var hasSeveralStates: Bool { table.withLock { $0.states.count > 1 } }

    /// See `RuleProgram.leadsFurther`.
    public func leadsFurther(_ name: UnsafePointer<CChar>, in state: UInt32) -> (hide: Bool, protect: Bool) {
        let bytes = UnsafeRawPointer(name).assumingMemoryBound(to: UInt8.self)
        return program.leadsFurther(UnsafeBufferPointer(start: bytes, count: length(of: name)), in: known(state))
    }

    /// Judges a name in a directory.
    public func judge(_ name: UnsafePointer<CChar>, in state: UInt32, isDirectory: Bool) -> Finding {
        let bytes = UnsafeRawPointer(name).assumingMemoryBound(to: UInt8.self)
        return judge(UnsafeBufferPointer(start: bytes, count: length(of: name)), in: known(state), isDirectory: isDirectory)
    }

    private func judge(_ name: UnsafeBufferPointer<UInt8>, in state: RuleProgram.State, isDirectory: Bool) -> Finding {
        var next = RuleProgram.State()
        let verdict = program.judge(name, in: state, isDirectory: isDirectory, next: &next)
        if verdict.isHidden { return .hidden }
        guard isDirectory else { return Finding(isHidden: false, isProtected: verdict.isProtected) }
        guard let number = number(of: next) else { return .hidden }
        return Finding(isHidden: false, isProtected: verdict.isProtected, state: number)
    }

    /// Judges a name in a directory, and tells of a hidden one as well whether it is protected, and its state.
    ///
    /// A directory beyond the limits is hidden and protected.
    public func judgeHidden(_ name: UnsafePointer<CChar>, in state: UInt32, isDirectory: Bool) -> Finding {
        let bytes = UnsafeRawPointer(name).assumingMemoryBound(to: UInt8.self)
        var next = RuleProgram.State()
        let name = UnsafeBufferPointer(start: bytes, count: length(of: name))
        let verdict = program.judge(name, in: known(state), isDirectory: isDirectory, next: &next)
        guard isDirectory else { return Finding(isHidden: verdict.isHidden, isProtected: verdict.isProtected) }
        guard let number = number(of: next) else { return Finding(isHidden: true, isProtected: true) }
        return Finding(isHidden: verdict.isHidden, isProtected: verdict.isProtected, state: number)
    }

    /// Judges a path below the granted directory. A name below a hidden one is hidden.
    public func judge(path: UnsafeBufferPointer<UInt8>, isDirectory: Bool) -> Finding {
        var finding = Finding(isHidden: false, isProtected: false, state: Self.top)
        var start = 0
        while start < path.count {
            var end = start
            while end < path.count, path[end] != UInt8(ascii: "/") { end += 1 }
            let isLast = end == path.count
            finding = judge(
                UnsafeBufferPointer(rebasing: path[start..<end]), in: known(finding.state), isDirectory: isDirectory || !isLast)
            if finding.isHidden { return finding }
            start = end + 1
        }
        return finding
    }

    private func known(_ state: UInt32) -> RuleProgram.State { table.withLock { $0.states[Int(truncatingIfNeeded: state)] } }

    private func number(of state: RuleProgram.State) -> UInt32? {
        table.withLock { table in
            if let known = table.numbers[state] { return known }
            let bytes = 64 + state.positions.count * 8
            guard table.states.count < Self.mostStates, table.bytes + bytes <= Self.mostBytes else { return nil }
            let number = UInt32(truncatingIfNeeded: table.states.count)
            table.states.append(state)
            table.numbers[state] = number
            table.bytes += bytes
            return number
        }
    }

    private func length(of name: UnsafePointer<CChar>) -> Int {
        var length = 0
        while name[length] != 0 { length += 1 }
        return length
    }
}
