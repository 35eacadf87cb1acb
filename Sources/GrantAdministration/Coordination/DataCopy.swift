import Glibc
import GrantSystem

/// Copies the data of files: by reflink where the filesystem can (FICLONE), else in the kernel, else by reading and writing. Holes stay
/// holes.
struct DataCopy {
    private var clones = true
    private var copiesInKernel = true
    private var buffer: [UInt8] = []

    /// Bytes between two progress reports.
    private static let step: Int64 = 16 << 20

    /// Copies the first `size` bytes of `source` into `target`, which is new and empty. `report`
    /// gets the bytes done since its last call, and whether they are shared. It may throw to stop.
    mutating func copy(
        _ source: borrowing FileDescriptor, to target: borrowing FileDescriptor, size: Int64,
        report: (Int, _ isShared: Bool) throws(Errno) -> Void
    ) throws(Errno) {
        if size == 0 { return }
        if try clone(source, to: target) {
            try target.truncate(to: size)
            return try report(Int(size), true)
        }
        var offset: Int64 = 0
        while offset < size, let part = try source.data(from: offset, size: size) {
            offset = part.lowerBound
            let end = min(part.upperBound, size)
            while offset < end {
                let count = try copy(source, to: target, at: offset, count: Int(min(end - offset, Self.step)))
                // The file was truncated meanwhile.
                if count == 0 { break }
                offset += Int64(count)
                try report(count, false)
            }
            if offset < end { break }
        }
        try target.truncate(to: size)
    }

    private mutating func clone(_ source: borrowing FileDescriptor, to target: borrowing FileDescriptor) throws(Errno) -> Bool {
        guard clones else { return false }
        do throws(Errno) {
            try target.clone(source)
            return true
        } catch {
            switch error.rawValue {
            // This file alone cannot be cloned. Others may share their data.
            case EINVAL, ETXTBSY, EPERM: return false
            case EOPNOTSUPP, EXDEV, ENOTTY, ENOSYS:
                clones = false
                return false
            default: throw error
            }
        }
    }

    private mutating func copy(
        _ source: borrowing FileDescriptor, to target: borrowing FileDescriptor, at offset: Int64, count: Int
    ) throws(Errno) -> Int {
        if copiesInKernel {
            do throws(Errno) {
                let copied = try target.copyRange(of: source, at: offset, count: count)
                if copied > 0 { return copied }
            } catch {
                guard [EXDEV, EOPNOTSUPP, EINVAL, ENOSYS].contains(error.rawValue) else { throw error }
                copiesInKernel = false
            }
        }
        if buffer.isEmpty { buffer = [UInt8](repeating: 0, count: 1 << 20) }
        return try target.copy(of: source, at: offset, count: count, by: &buffer)
    }
}
