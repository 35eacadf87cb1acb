import GrantCoordinator
import Foundation
import GrantSystem
import TestSupport
import Testing

@testable import GrantKit

/// Events in order, from any thread.
final class Events: Sendable {
    private let list = Lock<[String]>([])
    var all: [String] { list.withLock { $0 } }
    func add(_ event: String) { list.withLock { $0.append(event) } }

    /// Waits until it happened. After a minute the test fails.
    func wait(for event: String) throws {
        try eventually("“\(event)” happens: \(all)") { all.contains(event) }
    }
}

/// Waits until the condition holds. After a minute the test fails.
func eventually(_ what: @autoclosure () -> String, _ condition: () -> Bool) throws {
    let deadline = Date().addingTimeInterval(60)
    while !condition() {
        if Date() > deadline { throw TestFailure("not within a minute: \(what())") }
        usleep(1000)
    }
}

/// Waits until this number of threads of this process wait for the item at the URL.
func waitForClaims(_ count: Int, on url: URL) throws {
    let item = try ClaimedItem(path: FilePath.words(url))
    try eventually("\(count) wait for \(url.path)") { LocalClaims.process.waiting(for: item) >= count }
}

/// Threads of a program, each with one coordinated access. All have ended when `finish` returns.
final class Crew {
    let events = Events()
    private var threads: [WorkerThread] = []

    func start(_ body: @escaping @Sendable () -> Void) throws {
        let environment = GrantEnvironment.current
        threads.append(try WorkerThread.start("test") { GrantEnvironment.$current.withValue(environment, operation: body) })
    }

    func read(
        _ url: URL, as name: String, _ options: NSFileCoordinator.ReadingOptions = [],
        by coordinator: NSFileCoordinator = NSFileCoordinator(),
        _ body: @escaping @Sendable (URL) -> Void = { _ in }
    ) throws {
        try start { [events] in
            var error: NSError?
            coordinator.coordinate(readingItemAt: url, options: options, error: &error) { url in
                events.add("\(name) in")
                body(url)
                events.add("\(name) out")
            }
            if let error { events.add("\(name) failed \(error.code)") }
        }
    }

    func write(
        _ url: URL, as name: String, _ options: NSFileCoordinator.WritingOptions = [],
        by coordinator: NSFileCoordinator = NSFileCoordinator(),
        _ body: @escaping @Sendable (URL) -> Void = { _ in }
    ) throws {
        try start { [events] in
            var error: NSError?
            coordinator.coordinate(writingItemAt: url, options: options, error: &error) { url in
                events.add("\(name) in")
                body(url)
                events.add("\(name) out")
            }
            if let error { events.add("\(name) failed \(error.code)") }
        }
    }

    func finish() {
        for thread in threads { thread.join() }
        threads = []
    }
}
