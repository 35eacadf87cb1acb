import Glibc
import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantSystem

/// The command that runs while a claim is held.
enum CoordinatedChild {
    /// Puts the claimed paths into the command's environment.
    static func export(_ paths: [[UInt8]]) {
        for (place, path) in paths.enumerated() {
            _ = withCString(path) { setenv(place == 0 ? "GRANTFS_PATH" : "GRANTFS_PATH_\(place + 1)", $0, 1) }
        }
    }

    /// Runs the command and waits for it. Returns its exit status. 126 or 127 if it cannot be run,
    /// or 1 if the claim was lost meanwhile.
    ///
    /// The command gets signals from the terminal directly. Others are forwarded to it, so that the
    /// claim does not end before it.
    static func run(_ command: [[UInt8]], holding claim: Claim, endsWhenLost: Bool) throws(GrantError) -> Int32 {
        var set = sigset_t()
        sigemptyset(&set)
        for number in [SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT] { sigaddset(&set, number) }
        pthread_sigmask(SIG_BLOCK, &set, nil)
        let child: Int32
        do throws(Errno) {
            child = try ChildProcess.spawn(.path(String(decoding: command[0], as: UTF8.self)), arguments: command)
        } catch {
            Terminal.note("“\(String(decoding: command[0], as: UTF8.self))” cannot be run: \(error)")
            return error == Errno(ENOENT) ? 127 : 126
        }
        let (status, lost) = (Lock<Int32?>(nil), Lock<CoordinationError?>(nil))
        do throws(Errno) {
            try WorkerThread.start("grantfs-child") {
                let result = (try? ChildProcess.wait(child)) ?? 1
                status.withLock { $0 = result }
                kill(getpid(), SIGCHLD)
            }.detach()
        } catch {
            kill(child, SIGKILL)
            throw GrantError(.system, "no thread could be started", cause: error.description)
        }
        while true {
            var turn = timespec(tv_sec: 0, tv_nsec: 100_000_000)
            let number = sigtimedwait(&set, nil, &turn)
            if let result = status.withLock({ $0 }) {
                return lost.withLock { $0 } == nil && claim.lost() == nil ? result : say(claim.lost())
            }
            if number == SIGTERM || number == SIGHUP { kill(child, number) }
            if lost.withLock({ $0 }) == nil, let error = claim.lost() {
                lost.withLock { $0 = error }
                Terminal.note("\(error)\(endsWhenLost ? "; the command is told to end" : "; the command goes on without it")")
                if endsWhenLost { kill(child, SIGTERM) }
            }
        }
    }

    private static func say(_ error: CoordinationError?) -> Int32 {
        Terminal.note("the claim was lost before the command had ended: \(error?.description ?? "")")
        return 1
    }
}
