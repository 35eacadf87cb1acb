import CGrantSystem
import GrantSystem
import Synchronization

/// Makes inode numbers unique in the mount.
///
/// So files of two filesystems under two grants never look hard-linked.
public struct InodeNumbering: ~Copyable, @unchecked Sendable {
    // Sendable: the page is written only under the lock.
    private let known = Lock<[UInt64: UInt64]>([:])
    // Caches the last device: nearly all files of a mount are on one filesystem.
    private let lastDevice = Atomic<UInt64>(.max)
    private let lastBias = Atomic<UInt64>(0)

    /// Publishes the devices for the next daemon.
    private let page: UnsafeMutablePointer<clinux_supervised>?

    public init(page: UnsafeMutablePointer<clinux_supervised>? = nil) { self.page = page }

    /// Numbers a filesystem, unless it has a number already.
    ///
    /// Call it in the order of the grants, so that every mount of a view shows the same numbers.
    public func add(device: UInt64) {
        known.withLock { table in
            if table[device] != nil { return }
            let next = table.values.count { $0 < Self.unordered }
            guard next < Self.unordered else { return }
            set(device, UInt64(truncatingIfNeeded: next), &table)
        }
    }

    /// The inode number that the mount shows.
    ///
    /// The first filesystem keeps its own numbers (except 1, the view's root). Each further one has
    /// its index in the upper 16 bits, XORed into numbers that use those.
    public func shown(inode: UInt64, device: UInt64) -> UInt64 {
        let bias = bias(of: device)
        if bias == 0 { return inode == 1 ? 1 << 47 | 1 : inode }
        return inode ^ (bias << 48)
    }

    func handOver(to state: inout HandoverWriter) {
        let known = known.withLock { $0 }
        state.put(UInt64(truncatingIfNeeded: known.count))
        for (device, bias) in known {
            state.put(device)
            state.put(bias)
        }
    }

    /// Restores the numbers. Call it before any number is requested.
    func takeOver(from state: inout HandoverReader) throws(Errno) {
        for _ in 0..<(try state.takeCount(ofAtLeast: 16)) {
            let (device, bias): (UInt64, UInt64) = (try state.take(), try state.take())
            known.withLock {
                $0[device] = bias
                publish(device, bias)
            }
        }
    }

    private func bias(of device: UInt64) -> UInt64 {
        if lastDevice.load(ordering: .acquiring) == device {
            let bias = lastBias.load(ordering: .acquiring)
            // Both halves match only if the device is unchanged after both were read.
            if lastDevice.load(ordering: .acquiring) == device { return bias }
        }
        return known.withLock { table in
            if table[device] == nil { set(device, Self.unorderedBias(of: device, besides: table), &table) }
            let bias = table[device] ?? 0
            lastDevice.store(.max, ordering: .releasing)
            lastBias.store(bias, ordering: .releasing)
            lastDevice.store(device, ordering: .releasing)
            return bias
        }
    }

    /// From this number on, filesystems are numbered by their device number.
    ///
    /// These are mounted inside a grant and are found in any order.
    private static let unordered: UInt64 = 1 << 14

    private static func unorderedBias(of device: UInt64, besides table: [UInt64: UInt64]) -> UInt64 {
        // Fibonacci hashing.
        let first = (device &* 0x9E37_79B9_7F4A_7C15) >> 50
        return (0..<unordered).lazy.map { unordered | (first &+ $0) & (unordered - 1) }.first { !table.values.contains($0) } ?? unordered
    }

    /// Locking: call it with `known` held.
    private func set(_ device: UInt64, _ bias: UInt64, _ table: inout [UInt64: UInt64]) {
        table[device] = bias
        publish(device, bias)
    }

    private func publish(_ device: UInt64, _ bias: UInt64) {
        // The next daemon gives the others the same numbers by itself.
        guard let page, bias < Self.unordered else { return }
        if bias < UInt64(CLINUX_SUPERVISED_DEVICES) { clinux_supervised_devices(page)[Int(truncatingIfNeeded: bias)] = device }
        page.pointee.device_count = max(page.pointee.device_count, UInt32(truncatingIfNeeded: bias) + 1)
    }
}
