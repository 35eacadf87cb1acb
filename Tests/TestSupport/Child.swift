import Foundation
import Glibc

/// A program that a test started, with its own process group, a clean signal mask, and pipes to its standard input and output.
/// The program is killed and reaped when this value is destroyed. Every wait here has a time limit.
public final class Child: @unchecked Sendable {
    public let pid: pid_t
    private let input: Int32
    private let output: Int32
    private let errors: Int32
    private var pending: [UInt8] = []
    private var status: Int32?
    private var inputClosed = false

    /// Pipes are made and the child spawned under this lock, so that no other child inherits their ends.
    private static let spawning = NSLock()

    /// - Parameters:
    ///   - command: the program, found on PATH, and its arguments.
    ///   - separateErrors: whether standard error has its own pipe. Otherwise the child inherits that of the tests.
    public init(_ command: [String], identity: Identity = .current, environment: [String: String] = [:], separateErrors: Bool = false)
        throws
    {
        Machine.takeUsualUmask()
        var variables = ProcessInfo.processInfo.environment
        // Tests compare the output of other programs, so those run in the C locale. grantfs keeps
        // the machine's, which must change nothing.
        if command[0] != Programs.grantfs(for: identity) {
            for name in variables.keys where name.hasPrefix("LC_") || name.hasPrefix("LANG") { variables[name] = nil }
        }
        let command = identity.prefix + command
        variables["SWIFT_BACKTRACE"] = "enable=no"
        variables.merge(environment) { $1 }

        Child.spawning.lock()
        defer { Child.spawning.unlock() }
        let toChild = try Child.makePipe()
        let fromChild = try Child.makePipe()
        let errorsOfChild = separateErrors ? try Child.makePipe() : (-1, -1)
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, toChild.0, 0)
        posix_spawn_file_actions_adddup2(&actions, fromChild.1, 1)
        if separateErrors { posix_spawn_file_actions_adddup2(&actions, errorsOfChild.1, 2) }

        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var mask = sigset_t()
        sigemptyset(&mask)
        posix_spawnattr_setsigmask(&attributes, &mask)
        for signal in [SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2] { sigaddset(&mask, signal) }
        posix_spawnattr_setsigdefault(&attributes, &mask)
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP))

        var arguments = command.map { strdup($0) } + [nil]
        var strings = variables.map { strdup("\($0)=\($1)") } + [nil]
        defer { (arguments + strings).forEach { free($0) } }
        var child: pid_t = 0
        let result = posix_spawnp(&child, command[0], &actions, &attributes, &arguments, &strings)
        close(toChild.0)
        close(fromChild.1)
        if separateErrors { close(errorsOfChild.1) }
        pid = child
        input = toChild.1
        output = fromChild.0
        errors = errorsOfChild.0
        if result != 0 {
            status = 127 << 8
            throw TestFailure("cannot run \(command[0]): \(String(cString: strerror(result)))")
        }
    }

    deinit {
        kill()
        closeInput()
        close(output)
        if errors >= 0 { close(errors) }
    }

    private static func makePipe() throws -> (Int32, Int32) {
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else { throw TestFailure("pipe: \(String(cString: strerror(errno)))") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        return (ends[0], ends[1])
    }

    public func send(_ line: String) {
        let bytes = Array((line + "\n").utf8)
        // A write to a dead child fails with EPIPE. The cause of death is reported when the child
        // is reaped.
        signal(SIGPIPE, SIG_IGN)
        _ = bytes.withUnsafeBytes { write(input, $0.baseAddress, $0.count) }
    }

    public func closeInput() {
        if !inputClosed { close(input) }
        inputClosed = true
    }

    /// The next line of its output, without the newline, or nil if the output ended or `seconds`
    /// have passed.
    public func line(within seconds: Double = 60) -> String? {
        let deadline = Machine.deadline(seconds: seconds)
        while true {
            if let end = pending.firstIndex(of: 10) {
                let line = String(decoding: pending[..<end], as: UTF8.self)
                pending.removeFirst(end + 1)
                return line
            }
            guard let bytes = Child.read(output, until: deadline), !bytes.isEmpty else { return nil }
            pending += bytes
        }
    }

    /// Throws if the next line is a different one.
    public func expect(_ wanted: String, within seconds: Double = 60) throws { try expect([wanted], within: seconds) }

    public func expect(_ anyOf: [String], within seconds: Double = 60) throws {
        let line = line(within: seconds)
        guard let line, anyOf.contains(line) else {
            throw TestFailure("expected “\(anyOf.joined(separator: "” or “"))” from process \(pid), got \(line ?? "nothing")")
        }
    }

    /// All its output until it ends, or nil if that takes longer than `seconds`.
    func collect(within seconds: Double) -> (output: [UInt8], errors: [UInt8])? {
        let deadline = Machine.deadline(seconds: seconds)
        var collected = (output: pending, errors: [UInt8]())
        var open = [output] + (errors >= 0 ? [errors] : [])
        while !open.isEmpty {
            var items = open.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
            // A caller past its deadline still reads the output that has already arrived.
            let ready = poll(&items, nfds_t(items.count), Int32(max(0, deadline - Machine.milliseconds)))
            if ready == 0 || (ready < 0 && errno != EINTR) { return nil }
            if ready < 0 { continue }
            for item in items where item.revents != 0 {
                guard let bytes = Child.read(item.fd, until: deadline) else { return nil }
                if bytes.isEmpty { open.removeAll { $0 == item.fd } }
                if item.fd == output { collected.output += bytes } else { collected.errors += bytes }
            }
        }
        return collected
    }

    /// All that it wrote to standard output and standard error, or nil if it does not end within
    /// `seconds`.
    public func collected(within seconds: Double) -> (output: [UInt8], errors: String)? {
        collect(within: seconds).map { ($0.output, String(decoding: $0.errors, as: UTF8.self)) }
    }

    private static func read(_ fd: Int32, until deadline: Double) -> [UInt8]? {
        while true {
            var item = pollfd(fd: fd, events: Int16(POLLIN), revents: 0)
            let ready = poll(&item, 1, Int32(max(0, deadline - Machine.milliseconds)))
            if ready < 0 && errno == EINTR { continue }
            if ready <= 0 { return nil }
            var buffer = [UInt8](repeating: 0, count: 65536)
            let count = Glibc.read(fd, &buffer, buffer.count)
            if count < 0 && errno == EINTR { continue }
            return Array(buffer.prefix(max(0, count)))
        }
    }

    /// The exit status, or minus the signal that ended it, or nil if it still runs after `seconds`.
    public func wait(within seconds: Double = 60) -> Int32? {
        let (began, deadline) = (Machine.milliseconds, Machine.deadline(seconds: seconds))
        while status == nil {
            let isLast = Machine.milliseconds >= deadline
            var raw: Int32 = 0
            let result = waitpid(pid, &raw, WNOHANG)
            if result == pid { status = raw }
            if result < 0 && errno != EINTR { status = 127 << 8 }
            if status == nil {
                if isLast { return nil }
                // The longer the program runs, the less the delay until its end is noticed matters.
                pause(milliseconds: Int(min(20, max(1, (Machine.milliseconds - began) / 20))))
            }
        }
        let raw = status!
        return raw & 0x7F == 0 ? (raw >> 8) & 0xFF : -(raw & 0x7F)
    }

    /// Sends SIGKILL to its process group and reaps it. A process that hangs in a dead mount is
    /// abandoned after two seconds.
    public func kill() {
        guard status == nil, pid > 0 else { return }
        _ = Glibc.kill(-pid, SIGKILL)
        _ = wait(within: 2)
    }
}
