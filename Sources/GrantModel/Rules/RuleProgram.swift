/// A grant's rules in the form in which names are judged, one path component at a time.
///
/// A directory has a state, which follows from that of its parent and its own name. So judging a
/// name needs no path.
package struct RuleProgram: Sendable {
    /// The state of a directory.
    package struct State: Hashable, Sendable {
        /// Positions in anchored patterns, ascending. Those of `floating` are left out.
        package var positions: [Int32] = []
        /// Whether everything below is protected.
        package var isProtected = false
        /// Whether everything below is visible, by the patterns of `only`.
        package var isSelected = false

        package init() {}

        /// Sorts the positions, and leaves each once.
        fileprivate mutating func sortPositions() {
            positions.sort()
            var count = 0
            for index in positions.indices where count == 0 || positions[index] != positions[count - 1] {
                positions[count] = positions[index]
                count += 1
            }
            positions.removeLast(positions.count - count)
        }
    }

    /// What the rules say of a name.
    package struct Verdict: Equatable, Sendable {
        package var isHidden = false
        package var isProtected = false
        /// The indices of the deciding patterns, in `patterns`. -1 if there is none.
        package var hidingPattern: Int32 = -1
        package var protectingPattern: Int32 = -1

        package init() {}

        static var hidden: Verdict {
            var verdict = Verdict()
            verdict.isHidden = true
            return verdict
        }
    }

    private enum List: UInt8 { case hide, protect, only }

    /// One component of one pattern.
    private struct Position: Sendable {
        let pattern: Int32
        /// Its index in the pattern.
        let component: Int
        let isLast: Bool
        let isAnyDepth: Bool
        let exact: Comparison
        /// For names in the form of `FoldedName`.
        let folded: Comparison
    }

    private struct Comparison: Sendable {
        let tokens: Range<Int>
        /// A byte with which each match begins, or -1.
        let firstByte: Int16
    }

    private struct Traits: Sendable {
        let list: List
        let isNegated: Bool
        let isForDirectories: Bool
    }

    package let patterns: [RulePattern]
    private var traits: [Traits] = []
    private var positions: [Position] = []
    private var tokens: [UInt32] = []
    private var sets: [ByteSet] = []
    /// The positions that hold in each directory.
    private var floating: [Int32] = []
    private var isFloating: [Bool] = []
    /// The bytes with which the names begin that `floating` matches, and those with which its others end.
    private var edges = (first: ByteSet(), last: ByteSet())
    /// Whether `floating` may match names with any first and last byte.
    private var matchesAnyEdge = false
    private let hasOnly: Bool
    /// Whether a match of `only` can follow below any directory.
    private var mayFollowAnywhere = false
    /// The state of the granted directory.
    package private(set) var top = State()
    /// Whether any pattern protects.
    package let protects: Bool
    /// Whether no pattern differs from its form for folded names.
    private var isFolded = true

    package init(_ rules: GrantRules) {
        patterns = rules.hide + rules.protect + rules.only
        hasOnly = !rules.only.isEmpty
        protects = !rules.protect.isEmpty
        for (list, patterns) in [(List.hide, rules.hide), (.protect, rules.protect), (.only, rules.only)] {
            for pattern in patterns { add(pattern, to: list) }
        }
        top.positions.sort()
    }

    private mutating func add(_ pattern: RulePattern, to list: List) {
        let first = Int32(truncatingIfNeeded: positions.count)
        for (index, component) in pattern.components.enumerated() {
            let isLast = index == pattern.components.count - 1
            // Several `**` in succession are one.
            if !isLast, component == .anyDepth, pattern.components[index + 1] == .anyDepth { continue }
            let name: NamePattern? = if case .name(let name) = component { name } else { nil }
            if let name, name.folded != name { isFolded = false }
            let (exact, folded) = (add(name), add(name?.folded))
            positions.append(
                Position(
                    pattern: Int32(truncatingIfNeeded: traits.count), component: index, isLast: isLast, isAnyDepth: name == nil,
                    exact: exact, folded: folded))
            isFloating.append(false)
        }
        traits.append(Traits(list: list, isNegated: pattern.isNegated, isForDirectories: pattern.isForDirectories))
        let isEverywhere = pattern.floats || positions[Int(truncatingIfNeeded: first)].isAnyDepth
        for position in closure(of: first) {
            if isEverywhere {
                floating.append(position)
                noteEdge(of: positions[Int(truncatingIfNeeded: position)])
                isFloating[Int(truncatingIfNeeded: position)] = true
            } else {
                top.positions.append(position)
            }
        }
        if isEverywhere, list == .only, !pattern.isNegated { mayFollowAnywhere = true }
    }

    /// Notes the first or the last byte of the names that a floating position matches.
    private mutating func noteEdge(of position: Position) {
        if position.isAnyDepth {
            // Before other components it adds nothing: those float as well.
            if position.isLast { matchesAnyEdge = true }
        } else if let first = UInt8(exactly: position.exact.firstByte) {
            edges.first.insert(first)
        } else if let token = tokens[position.exact.tokens].last, let last = UInt8(exactly: token) {
            edges.last.insert(last)
        } else {
            matchesAnyEdge = true
        }
    }

    private mutating func add(_ name: NamePattern?) -> Comparison {
        let begin = tokens.count
        guard let name else { return Comparison(tokens: begin..<begin, firstByte: -1) }
        tokens += name.tokens.map { $0 >= NamePattern.firstSet ? $0 + UInt32(truncatingIfNeeded: sets.count) : $0 }
        sets += name.sets
        let first = name.tokens.first.flatMap { $0 < NamePattern.anyByte ? Int16(truncatingIfNeeded: $0) : nil }
        return Comparison(tokens: begin..<tokens.count, firstByte: first ?? -1)
    }

    /// A position, and those after `**`, which also stands for no directory.
    private func closure(of position: Int32) -> [Int32] {
        let step = positions[Int(truncatingIfNeeded: position)]
        return step.isAnyDepth && !step.isLast ? [position] + closure(of: position + 1) : [position]
    }

    /// Judges a name in a directory.
    ///
    /// - Parameters:
    ///   - name: Without its terminating zero.
    ///   - folded: The `FoldedName`, if the directory may ignore case. Patterns that hide or protect are
    ///     compared with it, those that do the opposite with the name itself.
    ///   - next: The state of the directory of that name. Without meaning for other files.
    package func judge(
        _ name: UnsafeBufferPointer<UInt8>, in state: State, isDirectory: Bool, folded: UnsafeBufferPointer<UInt8>? = nil,
        next: inout State
    ) -> Verdict {
        if folded == nil, state.positions.isEmpty, !state.isProtected, cannotMatch(name) {
            next = State()
            return Verdict()
        }
        // The last match in each list.
        var last: (hide: Int32, protect: Int32, only: Int32) = (-1, -1, -1)
        var follows = mayFollowAnywhere
        next.positions.removeAll(keepingCapacity: true)
        for position in floating { step(position, (name, folded), isDirectory, &last, &next, &follows) }
        for position in state.positions { step(position, (name, folded), isDirectory, &last, &next, &follows) }
        next.sortPositions()
        return verdict(last, in: state, isDirectory: isDirectory, follows: follows, next: &next)
    }

    /// Whether no pattern matches a name in a directory with an empty state. Tells it by two bytes, so not always.
    package func cannotMatch(_ name: UnsafeBufferPointer<UInt8>) -> Bool {
        guard !hasOnly, !matchesAnyEdge, let first = name.first, let last = name.last else { return false }
        return !edges.first.contains(first) && !edges.last.contains(last)
    }

    /// Whether a name is judged in the same way in each directory.
    package func hasOneForm(_ name: UnsafeBufferPointer<UInt8>) -> Bool { isFolded && name.allSatisfy(FoldedName.isFolded) }

    /// Judges a name in a directory of which it is not known whether it ignores case.
    ///
    /// - Parameter ignoresCase: Called only if that matters. Returns nil if it cannot be found out. The name is hidden then.
    package func judge(
        _ name: UnsafeBufferPointer<UInt8>, in state: State, isDirectory: Bool, next: inout State, ignoresCase: () -> Bool?
    ) -> Verdict {
        let verdict = judge(name, in: state, isDirectory: isDirectory, next: &next)
        if hasOneForm(name) { return verdict }
        var otherNext = State()
        let other = FoldedName.of(name).withUnsafeBufferPointer {
            judge(name, in: state, isDirectory: isDirectory, folded: $0, next: &otherNext)
        }
        if other == verdict, otherNext == next || !isDirectory { return verdict }
        guard let ignoresCase = ignoresCase() else { return .hidden }
        if !ignoresCase { return verdict }
        next = otherNext
        return other
    }

    /// Compares a name with one component, and records what follows from a match.
    private func step(
        _ position: Int32, _ name: Name, _ isDirectory: Bool,
        _ last: inout (hide: Int32, protect: Int32, only: Int32),
        _ next: inout State, _ follows: inout Bool
    ) {
        let step = positions[Int(truncatingIfNeeded: position)]
        if step.isAnyDepth {
            if isDirectory { for position in closure(of: position) { add(position, to: &next, &follows) } }
            if !step.isLast { return }
        } else if !matches(name, step) {
            return
        }
        let traits = traits[Int(truncatingIfNeeded: step.pattern)]
        if !step.isLast {
            if isDirectory { for position in closure(of: position + 1) { add(position, to: &next, &follows) } }
        } else if isDirectory || !traits.isForDirectories {
            switch traits.list {
            case .hide: last.hide = max(last.hide, step.pattern)
            case .protect: last.protect = max(last.protect, step.pattern)
            case .only: last.only = max(last.only, step.pattern)
            }
        }
    }

    private func add(_ position: Int32, to next: inout State, _ follows: inout Bool) {
        if isFloating[Int(truncatingIfNeeded: position)] { return }
        next.positions.append(position)
        let traits = traits[Int(truncatingIfNeeded: positions[Int(truncatingIfNeeded: position)].pattern)]
        if traits.list == .only, !traits.isNegated { follows = true }
    }

    private func verdict(
        _ last: (hide: Int32, protect: Int32, only: Int32), in state: State, isDirectory: Bool, follows: Bool, next: inout State
    ) -> Verdict {
        var verdict = Verdict()
        if last.hide >= 0, !traits[Int(truncatingIfNeeded: last.hide)].isNegated {
            (verdict.isHidden, verdict.hidingPattern) = (true, last.hide)
        }
        let isProtecting = last.protect >= 0 && !traits[Int(truncatingIfNeeded: last.protect)].isNegated
        if isProtecting { verdict.protectingPattern = last.protect }
        verdict.isProtected = state.isProtected || isProtecting
        next.isProtected = verdict.isProtected
        next.isSelected = state.isSelected
        if hasOnly, !state.isSelected {
            let isTakenBack = last.only >= 0 && traits[Int(truncatingIfNeeded: last.only)].isNegated
            next.isSelected = last.only >= 0 && !isTakenBack
            if !next.isSelected, isTakenBack || !(isDirectory && follows) { verdict.isHidden = true }
        }
        return verdict
    }

    /// Returns the patterns that go on in a directory of this state, each with the components that come next.
    package func patterns(in state: State) -> [RulePattern: [Int]] {
        var result: [RulePattern: [Int]] = [:]
        for number in state.positions {
            let position = positions[Int(truncatingIfNeeded: number)]
            result[patterns[Int(truncatingIfNeeded: position.pattern)], default: []].append(position.component)
        }
        return result
    }

    /// Whether a pattern that hides or protects goes on below this name.
    ///
    /// A symbolic link of that name would lead the pattern's path elsewhere. `**` and `only` do not
    /// count.
    package func leadsFurther(
        _ name: UnsafeBufferPointer<UInt8>, in state: State, folded: UnsafeBufferPointer<UInt8>? = nil
    ) -> (hide: Bool, protect: Bool) {
        var result = (hide: false, protect: false)
        for position in floating + state.positions {
            let step = positions[Int(truncatingIfNeeded: position)]
            let traits = traits[Int(truncatingIfNeeded: step.pattern)]
            if step.isLast || step.isAnyDepth || traits.isNegated || traits.list == .only { continue }
            if !matches((name, folded), step) { continue }
            if traits.list == .hide { result.hide = true } else { result.protect = true }
        }
        return result
    }

    /// Whether a name below a directory of this state may be protected.
    package func mayProtect(below state: State) -> Bool {
        state.isProtected || (floating + state.positions).contains { isProtecting(positions[Int(truncatingIfNeeded: $0)]) }
    }

    private func isProtecting(_ position: Position) -> Bool {
        let traits = traits[Int(truncatingIfNeeded: position.pattern)]
        return traits.list == .protect && !traits.isNegated
    }

    private typealias Name = (exact: UnsafeBufferPointer<UInt8>, folded: UnsafeBufferPointer<UInt8>?)

    private func matches(_ name: Name, _ step: Position) -> Bool {
        guard let folded = name.folded else { return matches(name.exact, step.exact) }
        let traits = traits[Int(truncatingIfNeeded: step.pattern)]
        return (traits.list == .only) == traits.isNegated ? matches(folded, step.folded) : matches(name.exact, step.exact)
    }

    /// Whether a name matches one component. An asterisk is tried with ever more bytes.
    private func matches(_ name: UnsafeBufferPointer<UInt8>, _ step: Comparison) -> Bool {
        if step.firstByte >= 0, name.isEmpty || Int16(truncatingIfNeeded: name[0]) != step.firstByte { return false }
        var (token, byte) = (step.tokens.lowerBound, 0)
        let end = step.tokens.upperBound
        var retry: (token: Int, byte: Int)?
        while true {
            if token < end, tokens[token] == NamePattern.anyBytes {
                token += 1
                if token == end { return true }
                retry = (token, byte)
            } else if token < end, byte < name.count, accepts(tokens[token], name[byte]) {
                token += 1
                byte += 1
            } else if token == end, byte == name.count {
                return true
            } else if let (again, from) = retry, from < name.count {
                (token, byte) = (again, from + 1)
                retry = (again, from + 1)
            } else {
                return false
            }
        }
    }

    private func accepts(_ token: UInt32, _ byte: UInt8) -> Bool {
        if token < NamePattern.anyByte { return token == UInt32(truncatingIfNeeded: byte) }
        return token == NamePattern.anyByte || sets[Int(truncatingIfNeeded: token - NamePattern.firstSet)].contains(byte)
    }

    /// Judges a path below the granted directory.
    ///
    /// A name below a hidden directory is hidden.
    ///
    /// - Parameter ignoresCase: Whether the directory with this many names in its path ignores case.
    package func judge(
        path: some Sequence<ArraySlice<UInt8>>, isDirectory: Bool, ignoresCase: (Int) -> Bool? = { _ in false }
    ) -> (verdict: Verdict, state: State) {
        var (state, next, verdict) = (top, State(), Verdict())
        var iterator = path.makeIterator()
        var name = iterator.next()
        var depth = 0
        while let current = name {
            name = iterator.next()
            let isDirectory = name != nil || isDirectory
            verdict = current.withUnsafeBufferPointer {
                judge($0, in: state, isDirectory: isDirectory, next: &next) { ignoresCase(depth) }
            }
            if verdict.isHidden { break }
            depth += 1
            swap(&state, &next)
        }
        return (verdict, state)
    }
}
