import GrantModel
import GrantSystem
import Synchronization

/// The rules of a scope, as its operations use them.
///
/// An operation inside the scope uses the rules without a reference. So former rules stay until
/// every operation that began with them has left: see `drop`.
public final class RuledScope: @unchecked Sendable {
    // Sendable: the rules are behind a lock, and the reference to them is atomic.

    /// The current rules, unretained. 0 if there are none.
    private let reference = Atomic<UInt>(0)
    private let kept = Lock<[ScopeRules]>([])

    /// Changes when the state of a known directory may have changed.
    ///
    /// It counts changes of the rules, and renames of directories. A value is never 0.
    public let generation = Atomic<UInt32>(1)

    /// Refused operations since the last report.
    public let refusals = Atomic<UInt64>(0)

    /// Creations and renames share it. A rename of a directory excludes them.
    ///
    /// Rank 1.
    ///
    /// Scopes of one filesystem have the same lock, because grants may overlap. Set before the
    /// scope is shared.
    public nonisolated(unsafe) var names = SharedLock()

    /// Whether names of the scope's filesystem may be found under other spellings.
    public nonisolated(unsafe) var folding = NameFolding.everywhere

    init() {}

    /// Whether there are rules.
    @inline(__always)
    public var hasRules: Bool { reference.load(ordering: .sequentiallyConsistent) != 0 }

    /// Whether these rules still hold.
    public func isCurrent(_ rules: ScopeRules) -> Bool {
        reference.load(ordering: .sequentiallyConsistent) == UInt(bitPattern: Unmanaged.passUnretained(rules).toOpaque())
    }

    /// Runs `body` with the rules. Returns nil if there are none.
    ///
    /// Call it inside the scope.
    @inline(__always)
    public func withRules<Result>(_ body: (ScopeRules) -> Result) -> Result? {
        guard let pointer = UnsafeRawPointer(bitPattern: reference.load(ordering: .sequentiallyConsistent)) else { return nil }
        return Unmanaged<ScopeRules>.fromOpaque(pointer)._withUnsafeGuaranteedRef(body)
    }

    /// The rules, for threads that are not inside the scope.
    public var current: ScopeRules? { hasRules ? kept.withLock { $0.last } : nil }

    /// Sets other rules. Operations that begin from now on use them.
    public func set(_ rules: GrantRules) {
        kept.withLock { kept in
            let made = ScopeRules(rules, serial: (kept.last?.serial ?? 0) &+ 1)
            kept.append(made)
            reference.store(
                rules.isEmpty ? 0 : UInt(bitPattern: Unmanaged.passUnretained(made).toOpaque()), ordering: .sequentiallyConsistent)
        }
        generation.wrappingAdd(1, ordering: .sequentiallyConsistent)
    }

    /// Frees the rules that came before some others.
    ///
    /// No operation that began with them may be inside.
    public func drop(before rules: ScopeRules) {
        kept.withLock { kept in
            if let place = kept.firstIndex(where: { $0 === rules }) { kept.removeFirst(place) }
        }
    }

    /// The last set rules, also if they are empty.
    public var last: ScopeRules? { kept.withLock(\.last) }

    /// Records that directories may have other states, because one was renamed.
    public func countRename() { generation.wrappingAdd(1, ordering: .sequentiallyConsistent) }
}

/// What a node knows of its directory in a scope with rules: the fields of `Node.ruleState`.
public struct RuledDirectory {
    /// `RuledScope.generation` when it was found out.
    public let generation: UInt32
    /// `ScopeRules.serial` of the rules that the state belongs to.
    public let serial: UInt32
    public let state: UInt32
    public var folds: Folds

    public enum Folds: UInt64 {
        case unknown
        case no
        case yes
    }

    public init(generation: UInt32, serial: UInt32, state: UInt32, folds: Folds = .unknown) {
        (self.generation, self.serial, self.state, self.folds) = (generation, serial, state, folds)
    }

    public init(rawValue: UInt64) {
        generation = UInt32(truncatingIfNeeded: rawValue >> 32)
        folds = Folds(rawValue: rawValue >> 30 & 3) ?? .unknown
        serial = UInt32(truncatingIfNeeded: rawValue >> 20) & ScopeRules.serialMask
        state = UInt32(truncatingIfNeeded: rawValue) & ScopeRules.mostStates
    }

    public var rawValue: UInt64 {
        UInt64(truncatingIfNeeded: generation) << 32 | folds.rawValue << 30 | UInt64(truncatingIfNeeded: serial) << 20
            | UInt64(truncatingIfNeeded: state)
    }
}
