@preconcurrency import Glibc
import GrantAdministration
import GrantSystem

/// A presenter that prints what it receives. Lines set how it answers from then on.
///
/// - `hold` answers nothing, and `answer` answers all held requests.
/// - `answering` answers at once.
/// - `twice` answers at once, two times.
/// - `failing` answers that the request failed.
/// - `cut` breaks its connections, and `quit` ends it.
/// - `exec FILE` runs another program, which keeps the connections. Its execve(2) closes FILE.
///
/// `hold`, `answering`, `twice` and `failing` may name a file, which is made once they are in effect.
final class ProbePresenter: Sendable {
    private let state = Lock((manner: "answering", held: [PresenterRequest]()))

    func present(_ path: [UInt8], purpose: String?, timeout: Double?) {
        let presentation: Presentation
        do throws(CoordinationError) {
            presentation = try Presentation(
                path, in: coordinator(), purpose: purpose, timeout: timeout, onRequest: { self.hear($0) }, onNotice: { self.hear($0) })
        } catch {
            return print("error \(error.errno)")
        }
        print("presenting")
        while let line = readLine() {
            switch line {
            case "cut": cut()
            case "answer":
                let held = state.withLock { state in
                    defer { state.held = [] }
                    return state.held
                }
                for request in held { request.answer() }
            case "quit": exit(0)
            case _ where line.hasPrefix("exec "): runAnother(closing: String(line.dropFirst(5)))
            default:
                let words = line.split(separator: " ").map(String.init)
                state.withLock { $0.manner = words[0] }
                // Requests that arrive from now on are answered in this way.
                if words.count > 1 { close(open(words[1], O_WRONLY | O_CREAT, 0o600)) }
            }
        }
        presentation.end()
    }

    private func hear(_ request: PresenterRequest) {
        // Held before it is printed, because `answer` may come at once.
        let manner = state.withLock { state in
            if state.manner == "hold" { state.held.append(request) }
            return state.manner
        }
        print("asked \(name(request.question)) \(String(decoding: request.path, as: UTF8.self))")
        switch manner {
        case "answering": request.answer()
        case "failing": request.answer(false)
        case "twice":
            request.answer()
            request.answer()
        default: break
        }
    }

    private func hear(_ notice: PresenterNotice) {
        func text(_ path: [UInt8]) -> String { String(decoding: path, as: UTF8.self) }
        switch notice {
        case .moved(let place): print("told moved \(text(place))")
        case .subitemAppeared(let path): print("told subitemAppeared \(text(path))")
        case .subitemChanged(let path): print("told subitemChanged \(text(path))")
        case .subitemRemoved(let path): print("told subitemRemoved \(text(path))")
        case .subitemMoved(let path, let place): print("told subitemMoved \(text(path)) \(text(place))")
        case .reacquired, .changed, .released, .restored, .missed, .lostDaemon: print("told \(notice)")
        }
    }

    private func name(_ question: PresenterQuestion) -> String {
        if case .revocation = question { return "revocation" }
        return "\(question)"
    }

    private func runAnother(closing file: String) {
        for descriptor in Int32(3)..<256 { _ = fcntl(descriptor, F_SETFD, 0) }
        let closed = open(file, O_RDWR | O_CLOEXEC)
        guard closed >= 0, write(closed, "x", 1) == 1 else { return print("error \(errno)") }
        print("exec")
        var words: [UnsafeMutablePointer<CChar>?] = [strdup("sleep"), strdup("1000"), nil]
        execv("/bin/sleep", &words)
    }

    /// Ends every connection of this process, as a daemon does to a presenter that breaks the
    /// rules.
    private func cut() {
        for descriptor in Int32(3)..<256 {
            var status = stat()
            if fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFSOCK { shutdown(descriptor, Int32(SHUT_RDWR)) }
        }
        print("cut")
        kill(getpid(), SIGSTOP)
    }
}

/// Starts `count` presenters of one item. Prints the number of answered requests for each line of
/// input.
func presentMany(_ path: [UInt8], _ count: Int) {
    let (coordination, answered) = (coordinator(), Lock(0))
    var presentations: [Presentation] = []
    for _ in 0..<count {
        // The longest allowed time: on a busy machine a thousand replies take longer than the usual five seconds.
        // Repeated, because the daemon may be blocked for longer than a presenter waits for it.
        var one: Presentation?
        for _ in 0..<5 where one == nil {
            one = try? Presentation(
                path, in: coordination, timeout: 60,
                onRequest: { request in
                    request.answer()
                    answered.withLock { $0 += 1 }
                }, onNotice: { _ in })
        }
        if let one { presentations.append(one) }
    }
    print("\(presentations.count) presenting")
    while readLine() != nil { print("\(answered.withLock { $0 }) answered") }
}
