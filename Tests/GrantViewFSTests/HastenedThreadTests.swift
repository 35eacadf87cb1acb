import CGrantSystem
import Foundation
import TestSupport
import Testing

/// A thread of a program that has been given a processor for a moment.
@Suite struct AHastenedThread {
    private static let program = """
        import os, sys, time
        def say(): print(os.sched_getscheduler(0) & 0xff, os.getpriority(os.PRIO_PROCESS, 0), flush=True)
        say()
        for line in sys.stdin:
            if line == 'rise\\n': os.setpriority(os.PRIO_PROCESS, 0, -19)
            if line == 'fork\\n' and os.fork(): os.wait(); continue
            say()
            if line == 'fork\\n': os._exit(0)
        """

    @Test("A hastened thread is restored, and its children inherit no priority", .enabled(if: Identity.isRoot))
    func restored() throws {
        let user = try #require(Machine.plainUser)
        for realtime in [false, true] {
            let child = try Child(["python3", "-c", Self.program], identity: user)
            try child.expect("0 0")
            var before = clinux_scheduling()
            try #require(clinux_other_hasten(child.pid, realtime, &before) == 0)
            child.send("fork")
            try child.expect("0 0")
            if !realtime {
                child.send("rise")
                try child.expect("0 -19")
            }
            clinux_other_restore(child.pid, &before)
            child.send("look")
            try child.expect("0 0")
            child.send("fork")
            try child.expect("0 0")
            child.kill()
        }
    }
}
