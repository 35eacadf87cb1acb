import GrantBookmarks
import GrantModel
import GrantSystem

/// Where questions about directories are asked. A system call on a filesystem that does not answer cannot be given up, and a process
/// with such a call under way does not end, not even by SIGKILL. Whoever must not wait has another process look.
public enum Lookout: Sendable {
    /// In this thread, for as long as it takes.
    case here
    /// In processes of their own: a program, found as execvp(3) finds it, that calls `Lookout.serve` on descriptor 3, and its
    /// arguments, the name first. A directory is given up when its filesystem has not answered for a second.
    case helper(program: String, arguments: [String])

    /// How long a filesystem may take for one answer: nanoseconds.
    static let patience: Int64 = 1_000_000_000
    /// After so many filesystems that should have answered and did not, the rest is not tried.
    private static let mostSilent = 3

    /// An answer to each question, in their order. Different filesystems that may hang are asked at the same time.
    func ask(_ questions: [Question]) -> [Answer] {
        guard case .helper(let program, let arguments) = self else {
            let resolver = BookmarkResolver()
            return questions.map { $0.answer(resolver) }
        }
        let table = (try? MountTable.current()) ?? MountTable(entries: [])
        // Of what a disk holds one helper sees to all; each server or daemon gets one of its own.
        var groups: [UInt64?: [Int]] = [:]
        for (index, question) in questions.enumerated() {
            let entry = table.entry(holding: question.path)
            let slow = entry.flatMap { FilesystemTraits(type: $0.type).isRemote ? $0.id : nil }
            groups[slow, default: []].append(index)
        }
        let results = inParallel(Array(groups)) { group in
            (group.value, Lookout.answers(to: group.value.map { questions[$0] }, isOneMount: group.key != nil, program, arguments))
        }
        var answers = [Answer](repeating: .silent, count: questions.count)
        for (indices, found) in results {
            for (index, answer) in zip(indices, found) { answers[index] = answer }
        }
        return answers
    }

    private static func answers(to questions: [Question], isOneMount: Bool, _ program: String, _ arguments: [String]) -> [Answer] {
        var answers: [Answer] = []
        var silent = 0
        while answers.count < questions.count {
            do throws(Errno) {
                let helper = try LookoutHelper(program, arguments)
                helper.ask(questions[answers.count...]) { answers.append($0) }
                helper.end()
            } catch {
                // No more processes: then it is as without one.
                let resolver = BookmarkResolver()
                return answers + questions[answers.count...].map { $0.answer(resolver) }
            }
            if answers.count == questions.count { break }
            answers.append(.silent)
            silent += 1
            // On one mount the next question would meet the same silence.
            if isOneMount || silent == mostSilent {
                answers += [Answer](repeating: .silent, count: questions.count - answers.count)
            }
        }
        return answers
    }
}
