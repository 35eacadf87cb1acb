import CGrantSystem
import Glibc

/// A fault, or a property of an older kernel, that a test simulates.
///
/// All are absent in the shipped program. The tests build another product of the same objects
/// (Tests/Faults), which takes settings from its environment.
public struct InjectedFault: Sendable {
    private let fault: clinux_fault

    /// Seconds within which a client has to answer a question.
    public static let answerSeconds = InjectedFault(fault: CLINUX_FAULT_ANSWER_SECONDS)
    /// How many daemons in a row may die.
    public static let crashes = InjectedFault(fault: CLINUX_FAULT_CRASHES)
    /// A daemon that recovers a mount dies or sleeps at a stage.
    public static let deathInRecovery = InjectedFault(fault: CLINUX_FAULT_DEATH_IN_RECOVERY)
    /// The agent publishes a change before the mounts have confirmed it.
    public static let earlyConfirmation = InjectedFault(fault: CLINUX_FAULT_EARLY_CONFIRMATION)
    /// A system call that the filter refuses ends the daemon.
    public static let endAtCalls = InjectedFault(fault: CLINUX_FAULT_END_AT_CALLS)
    /// A daemon hands over a state that only another version would write.
    public static let foreignState = InjectedFault(fault: CLINUX_FAULT_FOREIGN_STATE)
    /// Milliseconds that the keeper waits between two checks.
    public static let keeperPause = InjectedFault(fault: CLINUX_FAULT_KEEPER_PAUSE)
    /// Seconds after which a moved document is shown again.
    public static let leftoverSeconds = InjectedFault(fault: CLINUX_FAULT_LEFTOVER_SECONDS)
    /// The kernel maps no file that was opened for direct I/O.
    public static let noDirectMaps = InjectedFault(fault: CLINUX_FAULT_NO_DIRECT_MAPS)
    /// The fleet's grants never expire.
    public static let noFence = InjectedFault(fault: CLINUX_FAULT_NO_FENCE)
    /// The daemon has no CAP_SYS_ADMIN to hold openings with.
    public static let noOpenings = InjectedFault(fault: CLINUX_FAULT_NO_OPENINGS)
    /// The kernel evicts no nodes on request.
    public static let noPruning = InjectedFault(fault: CLINUX_FAULT_NO_PRUNING)
    /// The kernel sends no request again.
    public static let noResend = InjectedFault(fault: CLINUX_FAULT_NO_RESEND)
    /// The daemon drops set-id bits, as before Linux 5.11.
    public static let ownSetID = InjectedFault(fault: CLINUX_FAULT_OWN_SET_ID)
    /// Seconds in which a daemon has to recover a mount.
    public static let patience = InjectedFault(fault: CLINUX_FAULT_PATIENCE)
    /// The number of nodes from which on the kernel evicts unused ones.
    public static let prunedFrom = InjectedFault(fault: CLINUX_FAULT_PRUNED_FROM)
    /// Seconds within which a person cannot have read a question.
    public static let readingSeconds = InjectedFault(fault: CLINUX_FAULT_READING_SECONDS)
    /// A directory in which a test arms points at which the program stops.
    private static let stops = InjectedFault(fault: CLINUX_FAULT_STOPS)
    /// A daemon that takes a mount over dies or sleeps at a stage.
    public static let takingOver = InjectedFault(fault: CLINUX_FAULT_TAKING_OVER)
    /// statfs(2) of a file traps, with or without a lock held.
    public static let trap = InjectedFault(fault: CLINUX_FAULT_TRAP)

    /// What the names of the programs with faults have in addition: empty in the shipped programs.
    public static var programSuffix: String { String(cString: clinux_program_suffix()) }

    /// It is nil if the fault is absent.
    public var setting: String? { clinux_injected(fault).map { String(cString: $0) } }
    public var isPresent: Bool { clinux_injected(fault) != nil }
    public var number: UInt32? { setting.flatMap { UInt32($0, radix: 10) } }

    /// Stops at a point that a test has armed by a file `POINT.armed`, once.
    ///
    /// The file is renamed to `POINT.reached`, and the program goes on when the test removes it.
    public static func stop(at point: String) {
        guard let directory = stops.setting else { return }
        let reached = "\(directory)/\(point).reached"
        guard rename("\(directory)/\(point).armed", reached) == 0 else { return }
        while access(reached, F_OK) == 0 { usleep(1_000) }
    }
}
