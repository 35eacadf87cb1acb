import CLinux
import Glibc

/// Processes that go on in this program. Where a program is large and what is to be done small, starting it again takes most of the time.
public enum ForkedProcess {
    /// Whether a process can be made in this way: nothing may be under way that the child would find half done, so there must never have been a second thread.
    public static var isPossible: Bool { !WorkerThread.hasStarted }

    /// A child that does `body`, and ends with the status that it returns: in a session of its own, with no signal blocked or handled, stdin and stdout at
    /// /dev/null, and none of this process's descriptors but stderr and `descriptors`, which have the numbers from 3 on. Throws EBUSY where there are threads.
    ///
    /// `title`: what ps(1) shows of it.
    public static func start(_ title: [String], descriptors: [Int32], _ body: () -> Int32) throws(Errno) -> Int32 {
        guard isPossible else { throw Errno(EBUSY) }
        // What is in them would be written twice.
        fflush(nil)
        let child = try Errno.check(clinux_fork(descriptors, Int32(clamping: descriptors.count)))
        if child != 0 { return child }
        clinux_set_title(CommandLine.unsafeArgv, CommandLine.argc, title.joined(separator: " "))
        // As a program that is started has it, whose name the kernel gives it.
        ProcessName.set(title.first ?? "grantfs")
        exit(body())
    }
}
