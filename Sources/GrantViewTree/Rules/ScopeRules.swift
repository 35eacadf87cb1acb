import GrantModel
import GrantSystem

/// The rules of one scope, and the states that its directories have.
///
/// Locking: its own, rank 2, held for a moment.
public final class ScopeRules: Sendable {
    public let rules: GrantRules
    private let program: RuleProgram
    private let table: Lock<Table>
    /// The state of most directories: no pattern goes on in it, and nothing below it is protected.
    private let plain: UInt32

    private struct Table {
        var states: [RuleProgram.State]
        var numbers: [RuleProgram.State: UInt32]
        var bytes = 0
    }

    /// What the rules say of a name.
    public struct Finding: Equatable, Sendable {
        public var isHidden: Bool
        public var isProtected: Bool
        /// The state of the directory of that name. 0 for other files.
        public var state: UInt32 = 0

        public static let hidden = Finding(isHidden: true, isProtected: false)

        /// The stricter one of both. A directory with two states is hidden.
        public func merged(with other: Finding) -> Finding {
            Finding(
                isHidden: isHidden || other.isHidden || state != other.state, isProtected: isProtected || other.isProtected, state: state)
        }
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
        var states = Table(states: [program.top], numbers: [program.top: Self.top])
        if let known = states.numbers[RuleProgram.State()] {
            plain = known
        } else {
            plain = UInt32(truncatingIfNeeded: states.states.count)
            states.states.append(RuleProgram.State())
            states.numbers[RuleProgram.State()] = plain
        }
        table = Lock(states)
    }

    /// Whether a name below a directory may be protected.
    public func mayProtect(below state: UInt32) -> Bool { program.mayProtect(below: known(state)) }

    public var protects: Bool { program.protects }

    /// Whether there may be directories that have another state than the granted one.
    public var hasSeveralStates: Bool { table.withLock { $0.states.count > 1 } }

    /// See `RuleProgram.leadsFurther`. `folds`: as for `judge`.
    public func leadsFurther(_ name: UnsafePointer<CChar>, in state: UInt32, folds: Bool) -> (hide: Bool, protect: Bool) {
        var result = (hide: false, protect: false)
        let name = bytes(of: name)
        forEachForm(of: name, folds: folds) { folded in
            let found = program.leadsFurther(name, in: known(state), folded: folded)
            result = (result.hide || found.hide, result.protect || found.protect)
        }
        return result
    }

    /// Whether the rules say something else of a name, or of what is below it, if the directory ignores case.
    public func dependsOnFolding(_ name: UnsafePointer<CChar>, in state: UInt32) -> Bool {
        let name = bytes(of: name)
        if program.hasOneForm(name) { return false }
        let state = known(state)
        var (next, isAsked) = (RuleProgram.State(), false)
        for isDirectory in [false, true] where !isAsked {
            _ = program.judge(name, in: state, isDirectory: isDirectory, next: &next) {
                isAsked = true
                return false
            }
        }
        return isAsked
    }

    /// Judges a name in a directory. `folds`: whether that ignores case (`NameFolding`).
    public func judge(_ name: UnsafePointer<CChar>, in state: UInt32, isDirectory: Bool, folds: Bool) -> Finding {
        let name = bytes(of: name)
        if !folds, state == plain, program.cannotMatch(name) { return plainFinding(isDirectory: isDirectory) }
        let finding = judge(name, in: state, isDirectory: isDirectory, folds: folds)
        return finding.isHidden ? .hidden : finding
    }

    /// Judges a name in a directory of which it is not known whether it ignores case: see `RuleProgram.judge`.
    public func judge(
        _ name: UnsafePointer<CChar>, in state: UInt32, isDirectory: Bool, ignoresCase: () -> Bool?
    ) -> Finding {
        let name = bytes(of: name)
        if state == plain, program.cannotMatch(name), program.hasOneForm(name) { return plainFinding(isDirectory: isDirectory) }
        let finding = judge(name, in: state, isDirectory: isDirectory, ignoresCase: ignoresCase)
        return finding.isHidden ? .hidden : finding
    }

    /// Of a name that no pattern matches, in a plain directory.
    private func plainFinding(isDirectory: Bool) -> Finding {
        Finding(isHidden: false, isProtected: false, state: isDirectory ? plain : 0)
    }

    /// Judges a name in a directory, and tells of a hidden one as well whether it is protected, and its state.
    ///
    /// A directory beyond the limits is hidden and protected.
    public func judgeHidden(_ name: UnsafePointer<CChar>, in state: UInt32, isDirectory: Bool, folds: Bool) -> Finding {
        judge(bytes(of: name), in: state, isDirectory: isDirectory, folds: folds, entersHidden: true)
    }

    /// `entersHidden`: whether the state of a hidden directory matters. There are only so many states.
    private func judge(
        _ name: UnsafeBufferPointer<UInt8>, in state: UInt32, isDirectory: Bool, folds: Bool, entersHidden: Bool = false
    ) -> Finding {
        var result: Finding?
        forEachForm(of: name, folds: folds) { folded in
            var next = RuleProgram.State()
            let verdict = program.judge(name, in: known(state), isDirectory: isDirectory, folded: folded, next: &next)
            let finding = finding(verdict, isDirectory && (entersHidden || !verdict.isHidden) ? next : nil)
            result = result?.merged(with: finding) ?? finding
        }
        return result ?? .hidden
    }

    private func judge(
        _ name: UnsafeBufferPointer<UInt8>, in state: UInt32, isDirectory: Bool, ignoresCase: () -> Bool?
    ) -> Finding {
        var next = RuleProgram.State()
        let verdict = program.judge(name, in: known(state), isDirectory: isDirectory, next: &next, ignoresCase: ignoresCase)
        return finding(verdict, isDirectory && !verdict.isHidden ? next : nil)
    }

    /// - Parameter next: The state of an entered directory.
    private func finding(_ verdict: RuleProgram.Verdict, _ next: RuleProgram.State?) -> Finding {
        var finding = Finding(isHidden: verdict.isHidden, isProtected: verdict.isProtected)
        if let next {
            if let number = number(of: next) { finding.state = number } else { (finding.isHidden, finding.isProtected) = (true, true) }
        }
        return finding
    }

    /// Calls `body` with nil, or with a name's folded form, and with that without dots and blanks at its end.
    ///
    /// Some filesystems that ignore case find a name by both.
    private func forEachForm(of name: UnsafeBufferPointer<UInt8>, folds: Bool, _ body: (UnsafeBufferPointer<UInt8>?) -> Void) {
        if !folds { return body(nil) }
        var folded = FoldedName.of(name)
        folded.withUnsafeBufferPointer(body)
        let count = folded.count
        while let last = folded.last, last == UInt8(ascii: ".") || last == UInt8(ascii: " ") { folded.removeLast() }
        if folded.count < count, !folded.isEmpty { folded.withUnsafeBufferPointer(body) }
    }

    /// Judges a path below the granted directory. A name below a hidden one is hidden.
    ///
    /// The names may be other spellings of the files' names: the kernel keeps those by which files
    /// were found.
    ///
    /// - Parameter folds: Whether the directory whose path has this length ignores case. Returns nil
    ///   if that is not known. Asked only if it matters.
    public func judge(
        path: UnsafeBufferPointer<UInt8>, isDirectory: Bool, _ folding: NameFolding, folds: (Int) -> Bool?
    ) -> Finding {
        var finding = Finding(isHidden: false, isProtected: false, state: Self.top)
        var start = 0
        while start < path.count {
            var end = start
            while end < path.count, path[end] != UInt8(ascii: "/") { end += 1 }
            let name = UnsafeBufferPointer(rebasing: path[start..<end])
            let isDirectory = isDirectory || end < path.count
            let state = finding.state
            if folding == .everywhere {
                if Self.isShort(name) { return .hidden }
                finding = judge(name, in: state, isDirectory: isDirectory, folds: true)
            } else {
                finding = judge(name, in: state, isDirectory: isDirectory) { folding == .nowhere ? false : folds(max(0, start - 1)) }
            }
            if finding.isHidden { return .hidden }
            start = end + 1
        }
        return finding
    }

    /// Whether a name may be a short one, which vfat makes for a file with a longer name (`NAME~1.TXT`).
    private static func isShort(_ name: UnsafeBufferPointer<UInt8>) -> Bool {
        guard let tilde = name.lastIndex(of: UInt8(ascii: "~")) else { return false }
        let rest = name[(tilde + 1)...].prefix { $0 != UInt8(ascii: ".") }
        return !rest.isEmpty && rest.allSatisfy { $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") }
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

    private func bytes(of name: UnsafePointer<CChar>) -> UnsafeBufferPointer<UInt8> {
        var length = 0
        while name[length] != 0 { length += 1 }
        return UnsafeBufferPointer(start: UnsafeRawPointer(name).assumingMemoryBound(to: UInt8.self), count: length)
    }
}
