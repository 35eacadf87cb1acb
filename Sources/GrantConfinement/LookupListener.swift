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
    /// No error ends it earlier: without a listener the program's calls would fail (ENOSYS).
    public func serve(_ note: (LookedUpName) -> Void) {
        while true {
            let state = clinux_call_wait(descriptor.number)
            if state == 0 { return }
            var call = clinux_call()
            if state < 0 || clinux_call_receive(descriptor.number, &call) < 0 { continue }
            for name in names(of: call) { note(name) }
            _ = clinux_call_continue(descriptor.number, call.id)
        }
    }

    /// Reads the names from the caller's memory. The result is empty if the process was killed, or may not be inspected.
    private func names(of call: clinux_call) -> [LookedUpName] {
        guard let known = LookupCall.all[call.number],
            let memory = try? FileDescriptor.open("/proc/\(call.thread)/mem".utf8, O_RDONLY)
        else { return [] }
        // The thread's number may belong to another process by now.
        guard clinux_call_waits(descriptor.number, call.id) == 1 else { return [] }
        let arguments = [
            call.arguments.0, call.arguments.1, call.arguments.2, call.arguments.3, call.arguments.4, call.arguments.5,
        ]
        let isChange = LookupListener.changes(known.intent, arguments, memory)
        var found: [LookedUpName] = []
        for name in known.names {
            guard let text = LookupListener.text(at: arguments[name.path], of: memory), !text.isEmpty,
                let path = LookupListener.absolute(text, name.directory.map { arguments[$0] }, of: call.thread)
            else { continue }
            found.append(LookedUpName(path: path, isChange: isChange))
        }
        // The same for the directory's link, which was read by the number.
        return clinux_call_waits(descriptor.number, call.id) == 1 ? found : []
    }

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
    private static func text(at address: UInt64, of memory: borrowing FileDescriptor) -> [UInt8]? {
        let (page, longest) = (4096, Int(PATH_MAX))
        var result: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: page)
        while result.count < longest {
            let next = address &+ UInt64(clamping: result.count)
            // The next page may be missing.
            let wanted = min(page - Int(truncatingIfNeeded: next % UInt64(clamping: page)), longest - result.count)
            let count = buffer.withUnsafeMutableBytes {
                read(next, into: UnsafeMutableRawBufferPointer(rebasing: $0[..<wanted]), of: memory)
            }
            if count <= 0 { return nil }
            if let end = buffer[..<count].firstIndex(of: 0) { return result + buffer[..<end] }
            result += buffer[..<count]
        }
        return nil
    }

    private static func read(_ address: UInt64, into buffer: UnsafeMutableRawBufferPointer, of memory: borrowing FileDescriptor) -> Int {
        guard let offset = off_t(exactly: address), let start = buffer.baseAddress else { return -1 }
        return clinux_pread(memory.number, start, buffer.count, offset)
    }

    /// `directory`: the descriptor that a relative path begins at, nil for the working directory.
    private static func absolute(_ path: [UInt8], _ directory: UInt64?, of thread: Int32) -> [UInt8]? {
        if path.first == UInt8(ascii: "/") { return path }
        let number = directory.map { Int32(truncatingIfNeeded: $0) } ?? AT_FDCWD
        let link = number == AT_FDCWD ? "/proc/\(thread)/cwd" : "/proc/\(thread)/fd/\(number)"
        var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let count = buffer.withUnsafeMutableBytes { readlink(link, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count) }
        // A socket or a pipe has no path.
        guard count > 0, buffer[0] == UInt8(ascii: "/") else { return nil }
        return buffer[..<count] + [UInt8(ascii: "/")] + path
    }
}
