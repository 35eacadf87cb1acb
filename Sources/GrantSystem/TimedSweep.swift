/// Processes many items in sequence, without being blocked by items that hang.
///
/// Items are directories or processes, for example.
public enum TimedSweep {
    /// Timeouts for items that hang, in nanoseconds.
    public struct Timeouts: Sendable {
        /// For the first item that hangs.
        public var first: Int64
        /// For each later one.
        public var later: Int64
        /// After this many abandoned items the remaining ones are not started.
        public var most: Int

        public init(first: Int64 = 1_000_000_000, later: Int64 = 100_000_000, most: Int = .max) {
            (self.first, self.later, self.most) = (first, later, most)
        }
    }

    private struct Progress {
        var next = 0
        /// The worker that takes items now. Earlier workers were abandoned with their items.
        var worker = 0
        /// When the current item was started, or last reported progress.
        var began = Clock.monotonic
        var isDone = false
    }

    /// Calls `body` for each item on another thread, with a tool made for that thread.
    ///
    /// An item that exceeds its timeout is abandoned: its thread keeps it, `leaving` is called, and
    /// a new thread takes the rest. Returns when each item is done or abandoned. Without a thread
    /// the work runs on the caller's.
    public static func run<Item: Sendable, Tool>(
        _ items: [Item], patience: Timeouts = Timeouts(), with tool: @escaping @Sendable () -> Tool, leaving: (Item) -> Void,
        _ body: @escaping @Sendable (Item, Tool) -> Void
    ) {
        run(items, patience: patience, until: .max, with: tool, leaving: leaving) { item, tool, _ in body(item, tool) }
    }

    /// Does the same for items that may take long without hanging.
    ///
    /// `body` calls `onProgress` after each step, and the timeout counts from there.
    ///
    /// - Parameter deadline: A time of `Clock.monotonic` after which all remaining items are
    ///   abandoned, begun or not.
    public static func run<Item: Sendable, Tool>(
        _ items: [Item], patience: Timeouts = Timeouts(), until deadline: Int64, with tool: @escaping @Sendable () -> Tool,
        leaving: (Item) -> Void, _ body: @escaping @Sendable (Item, Tool, _ onProgress: () -> Void) -> Void
    ) {
        if items.isEmpty { return }
        let progress = Lock(Progress())
        let signal = Semaphore()
        let work: @Sendable (Int) -> Void = { worker in
            let tool = tool()
            while true {
                let index = progress.withLock { progress -> Int? in
                    guard progress.worker == worker else { return nil }
                    guard progress.next < items.count else {
                        progress.isDone = true
                        return nil
                    }
                    defer { progress.next += 1 }
                    progress.began = Clock.monotonic
                    return progress.next
                }
                guard let index else { break }
                body(items[index], tool) {
                    progress.withLock { if $0.worker == worker { $0.began = Clock.monotonic } }
                }
            }
            signal.post()
        }
        var worker = 0
        start(work, worker)
        while true {
            let limit = worker == 0 ? patience.first : patience.later
            signal.waitForAny(within: Int(clamping: max(1, limit / 10_000_000)))
            let now = Clock.monotonic
            let isOver = now >= deadline
            let left = progress.withLock { progress -> Int? in
                guard !progress.isDone, progress.next > 0, isOver || now - progress.began > limit else { return nil }
                progress.worker += 1
                progress.began = now
                return progress.next - 1
            }
            if let left {
                leaving(items[left])
                worker += 1
                if worker >= patience.most || isOver {
                    for item in items[(left + 1)...] { leaving(item) }
                    return
                }
                start(work, worker)
            }
            if progress.withLock({ $0.isDone }) { return }
        }
    }

    private static func start(_ work: @escaping @Sendable (Int) -> Void, _ worker: Int) {
        // Without a thread it takes its turn here.
        guard let thread = try? WorkerThread.start("grantfs-look", { work(worker) }) else { return work(worker) }
        thread.detach()
    }
}
