import CGrantSystem
import Glibc
import GrantSystem

/// A name that a program looks up, absolute as the program sees it.
public struct LookedUpName: Sendable {
    /// It may contain `.`, `..` and links.
    public let path: [UInt8]
    public let isChange: Bool
}

/// Receives what a `LookupFilter` reports.
///
/// This is observation, and protects nothing: the program can change a name in its memory after it was read here. The kernel
/// then uses the changed one.
public struct LookupListener: ~Copyable, Sendable {
    private let descriptor: FileDescriptor

    public init(_ descriptor: consuming FileDescriptor) { self.descriptor = descriptor }

    /// Lets every call proceed, after `note` had its names, until no process has the filter any more.
    ///
    /// `note` gets nil for a process whose memory this one may not read: ptrace(2), PTRACE_MODE_ATTACH_FSCREDS.
    ///
    /// No error ends it earlier: without a listener the program's calls would fail (ENOSYS).
    public func serve(_ note: (LookedUpName?) -> Void) {
        var buffer = [UInt8](repeating: 0, count: LookupListener.page)
        while true {
            let state = clinux_call_wait(descriptor.number)
            if state == 0 { return }
            var call = clinux_call()
            if state < 0 {
                // The kernel is short of memory.
                usleep(1000)
                continue
            }
            if clinux_call_receive(descriptor.number, &call) < 0 { continue }
            readNames(of: call, by: &buffer, note)
            _ = clinux_call_continue(descriptor.number, call.id)
        }
    }

    /// Reads the names from the caller's memory. There are none if the process was killed, or may not be inspected.
    private func readNames(of call: clinux_call, by buffer: inout [UInt8], _ note: (LookedUpName?) -> Void) {
        guard let known = LookupCall.all[call.number] else { return }
        // process_vm_readv(2) could wait for a page fault that the program serves itself, userfaultfd(2). This read fails then.
        guard let memory = try? FileDescriptor.open("/proc/\(call.thread)/mem".utf8, O_RDONLY) else {
            if clinux_call_waits(descriptor.number, call.id) == 1 { note(nil) }
            return
        }
        // The thread's number may belong to another process by now.
        guard clinux_call_waits(descriptor.number, call.id) == 1 else { return }
        let arguments = [
            call.arguments.0, call.arguments.1, call.arguments.2, call.arguments.3, call.arguments.4, call.arguments.5,
        ]
        let isChange = LookupListener.changes(known.intent, arguments, memory)
        for name in known.names {
            guard let text = LookupListener.text(at: arguments[name.path], of: memory, by: &buffer), let first = text.first else {
                continue
            }
            if first == UInt8(ascii: "/") {
                note(LookedUpName(path: text, isChange: isChange))
                continue
            }
            guard let start = LookupListener.start(name.directory.map { arguments[$0] }, of: call.thread),
                // The same for the link, which was read by the thread's number.
                clinux_call_waits(descriptor.number, call.id) == 1
            else { continue }
            note(LookedUpName(path: start + [UInt8(ascii: "/")] + text, isChange: isChange))
        }
    }

    private static let page = 4096

    private static func changes(_ intent: LookupCall.Intent, _ arguments: [UInt64], _ memory: borrowing FileDescriptor) -> Bool {
        let flags: UInt64
        switch intent {
        case .read: return false
        case .change: return true
        case .flags(let place): flags = arguments[place]
        case .how(let place):
            var value: UInt64 = 0
            let count = withUnsafeMutableBytes(of: &value) { read(arguments[place], into: $0, of: memory) }
            flags = count == MemoryLayout<UInt64>.size ? value : 0
        }
        let changing = UInt64(O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
        return flags & changing != 0
    }

    /// A string of at most PATH_MAX bytes. Returns nil if it is longer, which the kernel refuses too, or cannot be read.
    private static func text(
        at address: UInt64, of memory: borrowing FileDescriptor, by buffer: inout [UInt8]
    ) -> [UInt8]? {
        let longest = Int(PATH_MAX)
        var result: [UInt8] = []
        while result.count < longest {
            let next = address &+ UInt64(clamping: result.count)
            // The next page may be missing.
            let wanted = min(page - Int(truncatingIfNeeded: next % UInt64(clamping: page)), longest - result.count)
            let count = buffer.withUnsafeMutableBytes {
                read(next, into: UnsafeMutableRawBufferPointer(rebasing: $0[..<wanted]), of: memory)
            }
            if count <= 0 { return nil }
            let end = buffer[..<count].firstIndex(of: 0)
            result += buffer[..<(end ?? count)]
            if end != nil { return result }
        }
        return nil
    }

    private static func read(_ address: UInt64, into buffer: UnsafeMutableRawBufferPointer, of memory: borrowing FileDescriptor) -> Int {
        guard let offset = off_t(exactly: address), let start = buffer.baseAddress else { return -1 }
        return clinux_pread(memory.number, start, buffer.count, offset)
    }

    /// Where a relative path begins: at the descriptor, or in the working directory for nil.
    private static func start(_ directory: UInt64?, of thread: Int32) -> [UInt8]? {
        let number = directory.map { Int32(truncatingIfNeeded: $0) } ?? AT_FDCWD
        let link = number == AT_FDCWD ? "/proc/\(thread)/cwd" : "/proc/\(thread)/fd/\(number)"
        var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let count = buffer.withUnsafeMutableBytes { readlink(link, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count) }
        // A socket or a pipe has no path.
        guard count > 0, buffer[0] == UInt8(ascii: "/") else { return nil }
        return Array(buffer[..<count])
    }
}
