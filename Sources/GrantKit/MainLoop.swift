import Foundation
import Glibc

/// Serves the main actor from another main loop than Foundation's, such as GLib's or Qt's.
///
/// Documents and browsers work on the main actor, whose work waits for the main thread. An asynchronous `main` and `RunLoop.main.run()`
/// serve it. A program whose main thread runs another loop has that watch `descriptor`, and call `runPending` when it is readable:
///
/// ```
/// g_unix_fd_add(MainLoop.descriptor, G_IO_IN, { _, _, _ in MainLoop.runPending(); return 1 }, nil)
/// ```
///
/// With Qt a `QSocketNotifier` does so. There, UIKit's loop serves the main actor.
public enum MainLoop {
    /// Readable when the main actor has work.
    public static var descriptor: Int32 { mainQueueHandle() }

    /// Runs what the main actor has to do now, and returns. Call it on the main thread.
    @MainActor public static func runPending() {
        var count: UInt64 = 0
        // The descriptor is an eventfd(2): once its count is taken, it is readable when more work comes.
        var request = pollfd(fd: descriptor, events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
        if poll(&request, 1, 0) > 0 { _ = read(descriptor, &count, MemoryLayout<UInt64>.size) }
        runMainQueue(nil)
    }
}

// Dispatch's interface for other run loops, of which Foundation's makes use as well.
@_silgen_name("_dispatch_get_main_queue_handle_4CF") private func mainQueueHandle() -> Int32
@_silgen_name("_dispatch_main_queue_callback_4CF") private func runMainQueue(_ message: UnsafeMutableRawPointer?)
