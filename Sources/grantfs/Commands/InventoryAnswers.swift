import GrantCommandSupport
import Glibc
import GrantModel
import GrantSystem

/// What a process of one user (`InventoryCommand`) says of that user's stores. Bounded in time, bytes and values.
struct InventoryAnswers: Sendable {
    /// Why there is no answer, for people.
    struct Problem: Error {
        let text: String
    }

    private static let mostBytes = 8 << 20
    /// Of all answers together.
    private static let mostValues = 250_000

    private enum End: Sendable {
        /// The process closed the pipe.
        case closed
        case late, tooLong
    }

    private let documents: [JSON?]
    private let end: End

    /// Asks a process that runs as the user, for as long as `timeout` nanoseconds.
    ///
    /// The process inherits no terminal, session, environment or descriptor but a pipe, because the user may stop and end it.
    init(of stores: [String], _ uid: UInt32, _ program: String, _ timeout: Int64) throws(Errno) {
        if stores.isEmpty {
            (documents, end) = ([], .closed)
            return
        }
        let pipe = try PipePair()
        let command = [program, "inventory"] + (uid == 0 ? [] : ["--as", "\(uid)"]) + ["--"] + stores
        let environment = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SWIFT_BACKTRACE=enable=no"].map { Array($0.utf8) }
        let pid = try ChildProcess.spawn(
            .path(program), arguments: command.map { Array($0.utf8) }, environment: environment, detached: true, silent: true,
            descriptors: [pipe.writing.number])
        let (bytes, end) = Self.read(pipe.closeWriting(), until: Clock.monotonic + timeout)
        // If it hangs in a filesystem, it is abandoned.
        kill(pid, SIGKILL)
        for _ in 0..<500 {
            if (try? ChildProcess.hasEnded(pid)) != false {
                _ = try? ChildProcess.wait(pid)
                break
            }
            usleep(1000)
        }
        self.end = end
        documents = Self.documents(in: bytes)
    }

    /// What it said of the store of this number.
    func answer(_ index: Int) -> Result<JSON, Problem> {
        if index < documents.count {
            return documents[index].map { .success($0) } ?? .failure(Problem(text: "what it has on record is too long, or not understood"))
        }
        switch end {
        case .closed: return .failure(Problem(text: "the process that read it as its owner has ended"))
        case .late: return .failure(Problem(text: "it cannot be read in time"))
        case .tooLong: return .failure(Problem(text: "this user's stores have more on record than is read"))
        }
    }

    /// Parses the complete lines.
    private static func documents(in bytes: [UInt8]) -> [JSON?] {
        guard let reader = JSONReader() else { return [] }
        var left = mostValues
        return bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).dropLast().map { line in
            let text = Array(line)
            let document = reader.read(text, most: left)
            if document != nil { left -= JSONReader.values(in: text) }
            return document
        }
    }

    private static func read(_ pipe: borrowing FileDescriptor, until deadline: Int64) -> (bytes: [UInt8], end: End) {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            guard (try? Poll.wait(pipe.number, writing: false, deadline: deadline)) != nil else { return (bytes, .late) }
            let count = Glibc.read(pipe.number, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return (bytes, .closed) }
            bytes += buffer.prefix(count)
            if bytes.count > mostBytes { return (bytes, .tooLong) }
        }
    }
}
