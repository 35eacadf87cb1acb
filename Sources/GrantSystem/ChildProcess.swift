import CGrantSystem
import Glibc

/// A program to start.
public enum ProgramFile: Sendable, ExpressibleByStringLiteral {
    /// Without a slash it is searched in PATH.
    case path(String)
    /// An open file of this process, which the child does not inherit.
    case descriptor(Int32)

    public init(stringLiteral path: String) { self = .path(path) }
}

/// Starts programs and waits for them.
public enum ChildProcess {
    /// posix_spawn(3) with all signals unblocked and at their defaults.
    ///
    /// - Parameters:
    ///   - detached: In a session of its own, stdin and stdout at /dev/null, no other descriptor
    ///     inherited but stderr.
    ///   - inGroup: In a process group of its own, only the three standard descriptors inherited.
    ///   - silent: All three standard descriptors at /dev/null.
    ///   - descriptors: Get the numbers from 3 on in the child.
    ///   - errors: Becomes its standard error.
    ///   - environment: `NAME=VALUE` entries that replace this process's environment.
    public static func spawn(
        _ program: ProgramFile, arguments: [[UInt8]], environment: [[UInt8]]? = nil, detached: Bool = false, inGroup: Bool = false,
        silent: Bool = false, errors: Int32? = nil, descriptors: [Int32] = []
    ) throws(Errno) -> Int32 {
        let manner =
            (detached ? Int32(truncatingIfNeeded: clinux_SPAWN_DETACHED) : 0)
            | (inGroup ? Int32(truncatingIfNeeded: clinux_SPAWN_GROUP) : 0)
            | (silent ? Int32(truncatingIfNeeded: clinux_SPAWN_SILENT) : 0)
        let words = CStrings(arguments)
        let variables = environment.map { CStrings($0) }
        let count = Int32(clamping: descriptors.count)
        switch program {
        case .path(let path):
            return try Errno.check(clinux_spawn(path, -1, words.pointers, variables?.pointers, manner, errors ?? -1, descriptors, count))
        case .descriptor(let file):
            return try Errno.check(clinux_spawn(nil, file, words.pointers, variables?.pointers, manner, errors ?? -1, descriptors, count))
        }
    }

    /// Reaps the child.
    ///
    /// - Returns: Its exit status, or 128 plus the number of the signal that ended it.
    public static func wait(_ pid: Int32) throws(Errno) -> Int32 { try Errno.check(clinux_wait_for_child(pid)) }

    /// Reaps every child that has ended. For a process in which nothing waits for one meanwhile.
    public static func reap() { while waitpid(-1, nil, WNOHANG) > 0 {} }

    /// Waits until the child has ended, without reaping it.
    ///
    /// `wait` still returns its status, on any thread.
    public static func awaitEnd(_ pid: Int32) { clinux_await_end_of_child(pid) }

    /// Whether `wait` would return at once.
    public static func hasEnded(_ pid: Int32) throws(Errno) -> Bool { try Errno.check(clinux_child_has_ended(pid)) == 1 }
}

/// A list of strings as execve(2) takes it, freed with this value.
private final class CStrings {
    let pointers: [UnsafeMutablePointer<CChar>?]

    init(_ strings: [[UInt8]]) { pointers = strings.map { string in withCString(string) { strdup($0) } } + [nil] }

    deinit { for pointer in pointers { free(pointer) } }
}

/// Anonymous files in memory.
public enum MemoryFile {
    /// memfd_create(2) with these contents, positioned at its start.
    public static func of(_ contents: [UInt8]) throws(Errno) -> FileDescriptor {
        FileDescriptor(owning: try Errno.check(clinux_memory_file(contents, contents.count)))
    }

    /// Whether the file lies in memory: a memfd, or a file of a tmpfs or hugetlbfs.
    ///
    /// Only such files have seals (fcntl(2), F_GET_SEALS, and mm/memfd.c).
    public static func isOne(_ file: borrowing FileDescriptor) -> Bool { fcntl(file.number, 1034) >= 0 }
}

/// Looks programs up in PATH.
public enum ProgramSearch {
    /// The path of fusermount3. It is nil if there is none.
    ///
    /// It is searched as libfuse does: first at its fixed path, which need not be in PATH.
    public static var mountHelper: String? {
        let own = "/usr/bin/fusermount3"
        return access(own, X_OK) == 0 ? own : path(of: "fusermount3")
    }

    /// The bubblewrap to run, which is neither a link to this program nor a script that starts it. Returns nil if there is none.
    public static var bubblewrap: String? {
        path(of: "bwrap") { candidate in
            guard let resolved = realpath(candidate, nil) else { return false }
            defer { free(resolved) }
            if String(cString: resolved).split(separator: "/").last?.hasPrefix("grantfs") == true { return false }
            guard let file = try? FileDescriptor.open(candidate.utf8, O_RDONLY | O_NONBLOCK) else { return true }
            var buffer = [UInt8](repeating: 0, count: 4096)
            let count = read(file.number, &buffer, buffer.count)
            let text = buffer.prefix(max(0, count))
            let starts = ["bwrap --link", "grantfs bwrap", "grantfs-sandbox bwrap"].contains { text.place(ofPart: $0.utf8) != nil }
            return !(text.starts(with: "#!".utf8) && starts)
        }
    }

    /// The first executable file of that name, as execvp(3) would find it. Returns nil if there is
    /// none.
    public static func path(of program: String) -> String? { path(of: program) { _ in true } }

    private static func path(of program: String, where isWanted: (String) -> Bool) -> String? {
        let path = getenv("PATH").map { String(cString: $0) } ?? "/usr/bin:/bin"
        for directory in path.split(separator: ":", omittingEmptySubsequences: false) {
            let candidate = (directory.isEmpty ? "." : String(directory)) + "/" + program
            var status = stat()
            if stat(candidate, &status) == 0, status.st_mode & S_IFMT == S_IFREG, access(candidate, X_OK) == 0, isWanted(candidate) {
                return candidate
            }
        }
        return nil
    }
}

/// pipe2(2), close-on-exec.
public struct PipePair: ~Copyable, Sendable {
    public let reading: FileDescriptor
    public let writing: FileDescriptor

    public init() throws(Errno) {
        var ends: [Int32] = [-1, -1]
        _ = try Errno.check(clinux_pipe(&ends))
        reading = FileDescriptor(owning: ends[0])
        writing = FileDescriptor(owning: ends[1])
    }

    /// Gives both descriptors to the caller, who closes them.
    public consuming func release() -> (reading: Int32, writing: Int32) { (reading.release(), writing.release()) }

    /// Closes the reading end and keeps the writing end.
    public consuming func closeReading() -> FileDescriptor { writing }

    /// Closes the writing end and keeps the reading end.
    ///
    /// The other writers' last close is then seen as end of file.
    public consuming func closeWriting() -> FileDescriptor { reading }
}
