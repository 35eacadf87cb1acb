import Glibc
import GrantCommandLine
import GrantModel
import GrantSystem

/// `grantfs begin`: the first step inside a sandbox. It checks that the bound files are those that the caller named, before any
/// untrusted code runs there, and then becomes the program.
enum BeginCommand {
    /// Returns the words that precede the program's own. The result is empty if nothing is bound
    /// and there is no terminal, proxy or observer.
    static func words(
        for binds: [SandboxBind], _ terminal: SandboxTerminal?, _ proxy: SandboxProxy?, _ observer: LookupObserver?,
        _ handed: HandedDescriptors
    ) throws(Errno) -> [[UInt8]] {
        if binds.isEmpty, terminal == nil, proxy == nil, observer == nil { return [] }
        let lines = binds.flatMap { bind in [bind.place, Array("\(bind.device)".utf8), Array("\(bind.inode)".utf8)] }
        let list = handed.hand(try MemoryFile.of(Array(lines.joined(separator: [0]))))
        // The descriptor of this program, which the sandbox may not show under its path.
        let program = handed.hand(try FileDescriptor.open(Array("/proc/self/exe".utf8), OpenFlags.path))
        let inner = try terminal.map { (terminal) throws(Errno) in "\(handed.hand(try terminal.copy()))" } ?? "none"
        let way = proxy.map { "\(handed.hand($0.takeSandboxEnd())) \($0.direct.joined(separator: ","))" } ?? "none"
        let observing = try observer.map { (observer) throws(Errno) in
            let ends = try observer.hand(to: handed)
            return "\(ends.socket) \(ends.filter)"
        }
        return ["/proc/self/fd/\(program)", "begin", "--", "\(list)", inner, way, observing ?? "none"].map { Array($0.utf8) }
    }

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        let command = Array(arguments.operands.dropFirst(4))
        let list = Array("/proc/self/fd/".utf8) + (arguments.operands.first ?? [])
        let lines: [[UInt8]]
        do throws(Errno) {
            lines = try File.contents(of: list).split(separator: 0, omittingEmptySubsequences: false).map { Array($0) }
        } catch {
            throw GrantError(.system, "the program cannot be begun", cause: error.description)
        }
        // An empty list is one empty line.
        for start in stride(from: 0, to: lines == [[]] ? 0 : lines.count, by: 3) {
            guard start + 2 < lines.count, isThere(lines[start], device: lines[start + 1], inode: lines[start + 2]) else {
                throw GrantError(
                    .system, "the program is not started",
                    cause: "“\(String(decoding: lines[start], as: UTF8.self))” has changed meanwhile",
                    advice: "another program writes above it: try again")
            }
        }
        if let terminal = Int32(String(decoding: arguments.operands[1], as: UTF8.self)) {
            do throws(Errno) {
                try PseudoTerminal.control(terminal)
            } catch {
                throw GrantError(.system, "the program has no terminal", cause: error.description)
            }
            for number in 0...2 as ClosedRange<Int32> where isatty(number) == 1 { dup2(terminal, number) }
        }
        let way = String(decoding: arguments.operands[2], as: UTF8.self).split(separator: " ", omittingEmptySubsequences: false)
        if way.count == 2, let proxy = Int32(way[0]) {
            do throws(Errno) {
                try offer(toProxy: UnixSocket(connected: FileDescriptor(owning: proxy)), direct: String(way[1]))
            } catch {
                throw GrantError(.system, "the program has no proxy", cause: error.description)
            }
        }
        // Last: from then on each lookup here is one of the program.
        let observing = String(decoding: arguments.operands[3], as: UTF8.self).split(separator: " ").compactMap { Int32($0) }
        if observing.count == 2 {
            do throws(Errno) {
                try LookupObserver.observe(socket: observing[0], filter: observing[1])
            } catch {
                let isTaken = error == Errno(EBUSY)
                throw GrantError(
                    .unsupported, "the program's lookups cannot be observed",
                    cause: isTaken ? "another program observes this one's calls" : error.description, advice: "leave --learn out")
            }
        }
        // The program must not inherit the sandbox's descriptors.
        closefrom(3)
        var words = command.map { word in withCString(word) { strdup($0) } }
        words.append(nil)
        if let program = words[0] { execvp(program, words) }
        let error = Errno(errno)
        Terminal.note("“\(Terminal.visible(command[0]))” cannot be run: \(error)")
        guard error == Errno(ENOENT) || error == Errno(ENOTDIR) else { return SandboxProcess.notRunnable }
        SandboxProcess.advise()
        return SandboxProcess.notFound
    }

    /// Listens on the sandbox's loopback, as the program's variables say, and passes the socket to the proxy outside.
    private static func offer(toProxy proxy: borrowing UnixSocket, direct: String) throws(Errno) {
        let listener = try LoopbackListener()
        try proxy.send(descriptors: [listener.number], deadline: Clock.monotonic + 10_000_000_000)
        for name in SandboxProxy.variables { setenv(name, "http://127.0.0.1:\(listener.port)", 1) }
        // Servers of the program itself.
        for name in ["no_proxy", "NO_PROXY"] { setenv(name, direct, 1) }
    }

    /// Whether the file at the path has this device and inode.
    private static func isThere(_ place: [UInt8], device: [UInt8], inode: [UInt8]) -> Bool {
        guard let file = try? FileDescriptor.open(place, OpenFlags.path | O_NOFOLLOW), let status = try? file.status().st else {
            return false
        }
        return Array("\(UInt64(truncatingIfNeeded: status.st_dev))".utf8) == device
            && Array("\(UInt64(truncatingIfNeeded: status.st_ino))".utf8) == inode
    }
}
