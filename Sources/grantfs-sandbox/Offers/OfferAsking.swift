import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import Glibc
import GrantDesktop
import GrantModel
import GrantStore
import GrantSystem

/// Puts the questions of a view's offered directories to the person: `grantfs run --ask`.
///
/// A thread for each mount waits for questions of its daemon, and programs wait only as long as it does so. Another one asks.
final class OfferAsking: Sendable {
    enum Means: String, CaseIterable {
        case terminal, desktop

        /// Throws `.usage` if the program has an output that may be on the terminal and cannot be held up during a question.
        private static func requireHeldOutput() throws(GrantError) {
            for number in [STDOUT_FILENO, STDERR_FILENO] {
                var status = stat()
                guard fstat(number, &status) == 0 else { continue }
                let kind = status.st_mode & S_IFMT
                if kind == S_IFREG || kind == S_IFDIR || isatty(number) == 1 || (kind == S_IFCHR && status.st_rdev == nullDevice) {
                    continue
                }
                throw GrantError(
                    .usage, "run: no question on the terminal is safe from the program's output", cause: "it goes to a pipe or a socket",
                    advice: "--ask desktop, or write the output to a file")
            }
        }

        /// /dev/null
        private static let nullDevice: dev_t = 0x103

        /// Returns nil if there is nothing to ask. Throws `.usage` if a person cannot be asked that way.
        init?(_ arguments: ParsedArguments, hasOffers: Bool, _ isCopied: Bool) throws(GrantError) {
            let word = try arguments.text("ask")
            if !hasOffers, word == nil { return nil }
            if word != nil, !hasOffers, arguments.has("grant") {
                throw GrantError(.usage, "run: --ask is for directories of --offer", advice: "--offer DIR")
            }
            if isCopied {
                throw GrantError(
                    .usage, "run: --snapshot, --review and --undo do not copy offered directories",
                    advice: "grant them, or run it without a snapshot")
            }
            self = word.flatMap { Means(rawValue: $0) } ?? .terminal
            if self == .desktop { return }
            if (try? FileDescriptor.open("/dev/tty".utf8, O_RDWR | O_NOCTTY)) != nil {
                try Self.requireHeldOutput()
                return
            }
            throw GrantError(
                .usage, "run: no person can answer questions about offered directories", cause: "there is no terminal",
                advice: "--ask desktop")
        }
    }

    private let means: Means
    private let hasOwnView: Bool
    private let view: ViewName
    private let store: GrantStore
    private let terminal: SandboxTerminal?
    private let queue = Lock<[(question: GrantAdministrator.OfferQuestion, deadline: Int64)]>([])
    private let hasQuestion = Semaphore()
    private let isOver = Lock(false)
    /// How long a question may take, a little less than programs wait.
    private static let patience = InjectedFault.answerSeconds.number.map { Int64(clamping: $0) &* 990_000_000 } ?? 297_000_000_000
    private static let minutes: Double = 30

    /// - Parameters:
    ///   - hasOwnView: Whether the view ends with the program.
    ///   - terminal: The program's, which is not shown during a question.
    init(_ means: Means, about view: ViewName, hasOwnView: Bool, _ store: GrantStore, _ terminal: SandboxTerminal?) {
        (self.means, self.view, self.hasOwnView, self.store, self.terminal) = (means, view, hasOwnView, store, terminal)
    }

    /// Starts asking. Without threads the directories stay refused.
    func begin() {
        // Otherwise a program that is quick would be refused.
        for mount in (try? store.mounts(view: view)) ?? [] { _ = GrantAdministrator.questions(of: mount, store, after: .max, within: 0) }
        for work in [listenToAll, askAll] {
            guard let thread = try? WorkerThread.start("offers", work) else { return end() }
            thread.detach()
        }
    }

    /// Withdraws the question that is open. None is asked afterwards.
    func end() {
        isOver.withLock { $0 = true }
        hasQuestion.post()
        terminal?.withdrawQuestion()
    }

    /// Has a thread listen to each mount of the view, also to later ones.
    private func listenToAll() {
        var heard = Set<GrantID>()
        while !isOver.withLock({ $0 }) {
            for mount in (try? store.mounts(view: view)) ?? [] where heard.insert(mount.id).inserted {
                guard let thread = try? WorkerThread.start("offers", { [self] in listen(to: mount) }) else {
                    heard.remove(mount.id)
                    continue
                }
                thread.detach()
            }
            usleep(500_000)
        }
    }

    private func listen(to mount: MountRecord) {
        var last: UInt64 = 0
        var failures = 0
        // A daemon that dies may have a successor.
        while !isOver.withLock({ $0 }), failures < 100 {
            guard let found = GrantAdministrator.questions(of: mount, store, after: last, within: 1_000) else {
                failures += 1
                usleep(100_000)
                continue
            }
            failures = 0
            for question in found { last = max(last, question.number) }
            let deadline = Clock.monotonic + Self.patience
            queue.withLock { queue in queue += found.map { ($0, deadline) } }
            if !found.isEmpty { hasQuestion.post() }
        }
    }

    private func askAll() {
        while !isOver.withLock({ $0 }) {
            guard let (question, deadline) = queue.withLock({ $0.isEmpty ? nil : $0.removeFirst() }) else {
                hasQuestion.wait()
                continue
            }
            // Again if another command has changed the grant meanwhile, or the answer could not be recorded.
            while let grant = try? store.grant(question.grant), isOpen(grant), !isOver.withLock({ $0 }), Clock.monotonic < deadline {
                let use = OfferedUse(question, of: grant, hasOwnView: hasOwnView)
                // Held before the answer, so that its number cannot become another process's.
                let process = use.process.flatMap { try? HeldProcess($0) }
                defer { terminal?.redraw() }
                guard let answer = ask(use, until: deadline) else { break }
                do throws(GrantError) {
                    try carryOut(answer, use)
                    if answer == .once { watch(process, grant) }
                } catch {
                    Terminal.note("the answer about “\(grant.name)” is not carried out: \(error.description)")
                }
            }
        }
    }

    /// Whether the grant waits for an answer.
    private func isOpen(_ grant: Grant) -> Bool {
        guard let now = try? store.grant(grant.id) else { return false }
        return now.isOffered && now.state(at: Instant(nanoseconds: Clock.realtime)) == .active
    }

    /// nil if the question was withdrawn or has been answered elsewhere.
    private func ask(_ use: OfferedUse, until deadline: Int64) -> OfferedUse.Answer? {
        if means == .desktop { return askOnDesktop(use) }
        let size = Self.columns
        let isOver = { [self] in self.isOver.withLock { $0 } || Clock.monotonic >= deadline || !isOpen(use.grant) }
        if let terminal {
            return terminal.ask(use.text(columns: size), again: use.choiceText, isOver: isOver) { use.answer($0) }
        }
        return ControllingTerminal.ask(use.text(columns: size), again: use.choiceText, isOver: isOver) { use.answer($0) }
    }

    /// The width of the terminal, or 0.
    private static var columns: Int {
        guard let terminal = try? FileDescriptor.open("/dev/tty".utf8, O_RDWR | O_NOCTTY) else { return 0 }
        var size = winsize()
        return ioctl(terminal.number, UInt(TIOCGWINSZ), &size) == 0 ? Int(size.ws_col) : 0
    }

    private func askOnDesktop(_ use: OfferedUse) -> OfferedUse.Answer? {
        do throws(GrantError) {
            guard let chosen = try DesktopChooser.choose(folder: use.grant.bookmark.path, title: use.title) else { return .never }
            if chosen == [use.grant.bookmark.path] { return .session }
            Terminal.note("“\(use.grant.name)” is refused: another directory was chosen")
        } catch {
            Terminal.note("“\(use.grant.name)” is refused: \(error.description)")
        }
        return .never
    }

    private func carryOut(_ answer: OfferedUse.Answer, _ use: OfferedUse) throws(GrantError) {
        let administrator = GrantAdministrator.command(store)
        let now = Instant(nanoseconds: Clock.realtime)
        switch answer {
        case .session: _ = try administrator.setUnchanged(use.grant, access: use.grant.access, expires: nil)
        case .once, .minutes:
            // A day at most, whatever becomes of the process.
            let end = now.adding(seconds: answer == .once ? 86_400 : Self.minutes * 60)
            let expires = use.grant.expires.map { min($0, end) } ?? end
            _ = try administrator.setUnchanged(use.grant, access: use.grant.access, expires: .some(expires))
        case .readOnly: _ = try administrator.setUnchanged(use.grant, access: .readOnly, expires: nil)
        case .never: _ = try administrator.revoke([use.grant])
        }
    }

    /// Revokes a grant that was allowed once, when the process has ended.
    private func watch(_ process: HeldProcess?, _ grant: Grant) {
        guard let process,
            let thread = try? WorkerThread.start(
                "once",
                { [self] in
                    while !isOver.withLock({ $0 }), !process.handle.hasEnded(within: 1_000) {}
                    end(grant)
                })
        else { return end(grant) }
        thread.detach()
    }

    private func end(_ grant: Grant) {
        // Its view, which is the program's own, ends as well.
        if isOver.withLock({ $0 }) { return }
        do throws(GrantError) {
            _ = try GrantAdministrator.command(store).revoke([grant])
        } catch {
            Terminal.note("“\(grant.name)” is not revoked: \(error.description)")
        }
    }

    private final class HeldProcess: Sendable {
        let handle: ProcessHandle

        init(_ pid: Int32) throws(Errno) { handle = try ProcessHandle(pid) }
    }
}
