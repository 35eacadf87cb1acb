import GrantBookmarks
import GrantModel
import GrantSystem

/// Where requests about directories are carried out. A system call on a filesystem that hangs cannot be cancelled, and a process in
/// such a call cannot even be ended by SIGKILL. A caller that must not block lets another process do it.
public enum DirectoryProbe: Sendable {
    /// In the calling thread, which may block.
    case inProcess
    /// In helper processes: a program that calls `DirectoryProbe.serve` on descriptor 3, and its arguments, the name first. A request fails
    /// when its filesystem has not answered for a second.
    case helper(program: ProgramFile, arguments: [String])
    /// Like `helper`, but the first helper is an existing process.
    case standing(StandingProbe, program: ProgramFile, arguments: [String])

    /// How long a filesystem may take for one answer: nanoseconds.
    static let answerTimeout: Int64 = 1_000_000_000
    /// After so many filesystems that did not answer, the rest is not tried.
    private static let maxUnresponsive = 3

    /// Returns an answer to each request, in order. Different filesystems that may hang are asked concurrently.
    package func ask(_ requests: [ProbeRequest]) -> [ProbeAnswer] {
        let (standing, program, arguments): (StandingProbe?, ProgramFile, [String])
        switch self {
        case .inProcess:
            let resolver = BookmarkResolver()
            return requests.map { $0.answer(resolver) }
        case .helper(let named, let words): (standing, program, arguments) = (nil, named, words)
        case .standing(let probe, let named, let words): (standing, program, arguments) = (probe, named, words)
        }
        let table = (try? MountTable.current()) ?? MountTable(entries: [])
        // One helper serves all disks. Each remote or user-space filesystem gets its own.
        var groups: [UInt64?: [Int]] = [:]
        for (index, question) in requests.enumerated() {
            let entry = table.entry(holding: question.path)
            let slow = entry.flatMap { FilesystemTraits(type: $0.type).isRemote ? $0.id : nil }
            groups[slow, default: []].append(index)
        }
        let results = inParallel(Array(groups)) { group in
            (
                group.value,
                DirectoryProbe.answers(to: group.value.map { requests[$0] }, isOneMount: group.key != nil, standing, program, arguments)
            )
        }
        var answers = [ProbeAnswer](repeating: .unresponsive, count: requests.count)
        for (indices, found) in results {
            for (index, answer) in zip(indices, found) { answers[index] = answer }
        }
        return answers
    }

    private static func answers(
        to requests: [ProbeRequest], isOneMount: Bool, _ standing: StandingProbe?, _ program: ProgramFile, _ arguments: [String]
    ) -> [ProbeAnswer] {
        var answers: [ProbeAnswer] = []
        var unresponsive = 0
        while answers.count < requests.count {
            do throws(Errno) {
                let lent = standing?.take()
                let helper = if let lent { lent } else { try ProbeHelper(program, arguments) }
                try helper.ask(requests[answers.count...]) { answers.append($0) }
                if lent == nil || answers.count < requests.count { helper.end() } else { standing?.putBack(helper) }
            } catch {
                // Out of processes, or without the program: it runs in this one.
                let resolver = BookmarkResolver()
                return answers + requests[answers.count...].map { $0.answer(resolver) }
            }
            if answers.count == requests.count { break }
            answers.append(.unresponsive)
            unresponsive += 1
            // On one mount the next request would hang as well.
            if isOneMount || unresponsive == maxUnresponsive {
                answers += [ProbeAnswer](repeating: .unresponsive, count: requests.count - answers.count)
            }
        }
        return answers
    }
}
