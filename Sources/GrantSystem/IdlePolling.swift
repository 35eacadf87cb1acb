import Glibc
import Synchronization

/// Keeps idle processors polling instead of halting, while it is on.
///
/// The host has to wake a halted processor of a virtual machine: 15 µs or more, twice for each
/// request that a sleeping reader serves a sleeping caller. This writes to `/dev/cpu_dma_latency`
/// (Documentation/power/pm_qos_interface.rst): a latency of 0 rules out every idle state but
/// polling. The kernel drops the setting with the descriptor, so it ends with the process.
public final class IdlePolling: Sendable {
    private let device: FileDescriptor
    private let polledNanoseconds = Atomic<UInt64>(0)
    /// When it was turned on. 0 while it is off.
    private let since = Atomic<Int64>(0)

    /// PM_QOS_CPU_LATENCY_DEFAULT_VALUE in microseconds: no request of ours.
    private static let any: Int32 = 2_000_000_000

    /// Opens the device.
    ///
    /// - Throws: EACCES if this process may not open the device (it is root's), ENOENT if there is
    ///   none.
    public init() throws(Errno) { device = try FileDescriptor.open(Self.path.utf8, O_WRONLY) }

    public static let path = "/dev/cpu_dma_latency"

    /// Whether polling is known to help here at a bounded cost.
    ///
    /// It helps in a KVM guest whose idle driver shows that halting is expensive
    /// (drivers/cpuidle/cpuidle-haltpoll.c). The guest must have few processors, since all of them
    /// poll.
    public static var isWorthwhile: Bool {
        guard sysconf(Int32(truncatingIfNeeded: _SC_NPROCESSORS_ONLN)) <= 8,
            let file = try? FileDescriptor.open("/sys/devices/system/cpu/cpuidle/current_driver".utf8, O_RDONLY)
        else { return false }
        return withUnsafeTemporaryAllocation(byteCount: 32, alignment: 1) { buffer in
            let count = read(file.number, buffer.baseAddress!, buffer.count)
            return count > 0 && buffer.prefix(count).starts(with: "haltpoll".utf8)
        }
    }

    /// Turns polling on. `begin` and `end` are for one thread.
    public func begin() {
        guard since.load(ordering: .relaxed) == 0, ask(0) else { return }
        since.store(Clock.monotonic, ordering: .relaxed)
    }

    public func end() {
        let began = since.load(ordering: .relaxed)
        guard began != 0, ask(Self.any) else { return }
        polledNanoseconds.wrappingAdd(UInt64(clamping: Clock.monotonic &- began), ordering: .relaxed)
        since.store(0, ordering: .relaxed)
    }

    /// Total time for which processors were kept from halting.
    public var nanoseconds: UInt64 {
        let began = since.load(ordering: .relaxed)
        let now = began == 0 ? 0 : max(0, Clock.monotonic - began)
        return polledNanoseconds.load(ordering: .relaxed) &+ UInt64(clamping: now)
    }

    private func ask(_ microseconds: Int32) -> Bool {
        var value = microseconds
        return write(device.number, &value, MemoryLayout<Int32>.size) == MemoryLayout<Int32>.size
    }
}
