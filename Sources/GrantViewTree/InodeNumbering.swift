import CGrantSystem
import GrantSystem
import Synchronization

/// Makes inode numbers unique in the mount, so that files of two filesystems under two grants never look hard-linked.
public struct InodeNumbering: ~Copyable, @unchecked Sendable {
    // Safe to share: what is written to the page is written under the lock.
    private let known = Lock<[UInt64: UInt64]>([:])
    // Caches the last device: nearly all files of a mount are on one filesystem.
    private let lastDevice = Atomic<UInt64>(.max)
    private let lastBias = Atomic<UInt64>(0)

    /// Publishes the devices for the next daemon.
    private let page: UnsafeMutablePointer<clinux_supervised>?

    public init(page: UnsafeMutablePointer<clinux_supervised>? = nil) { self.page = page }

    /// The inode number that the mount shows. The first filesystem keeps its own numbers (except 1, the view's root); each further
    /// one has its index in the upper 16 bits, XORed into numbers that use those.
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

    /// Before any number is asked for.
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
            let bias = table[device] ?? UInt64(truncatingIfNeeded: table.count)
            if table[device] == nil { publish(device, bias) }
            table[device] = bias
            lastDevice.store(.max, ordering: .releasing)
            lastBias.store(bias, ordering: .releasing)
            lastDevice.store(device, ordering: .releasing)
            return bias
        }
    }

    private func publish(_ device: UInt64, _ bias: UInt64) {
        guard let page else { return }
        if bias < UInt64(CLINUX_SUPERVISED_DEVICES) { clinux_supervised_devices(page)[Int(truncatingIfNeeded: bias)] = device }
        page.pointee.device_count = max(page.pointee.device_count, UInt32(truncatingIfNeeded: bias) + 1)
    }
}
