import Foundation
import GrantSystem
import TestSupport
import Testing

@testable import GrantKit

/// Runs a task's work on threads of its own: those that Swift has for all tasks may for long be busy with tests that wait.
private final class OwnThreads: TaskExecutor {
    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        Thread.detachNewThread { [self] in job.runSynchronously(on: asUnownedTaskExecutor()) }
    }
}

@Suite struct CoordinatedAccessOfTasks {
    /// A note that no daemon knows, and an environment without a store.
    private func note() throws -> (Bench, URL, GrantEnvironment) {
        let bench = try Bench()
        let url = try bench.plain("folder").appendingPathComponent("note")
        try Data("one".utf8).write(to: url)
        return (bench, url, GrantEnvironment(store: bench.fixture.base + "/no-store"))
    }

    @Test("A coordinated read or write returns the result or error of its work")
    func works() async throws {
        let (bench, url, environment) = try note()
        try await GrantEnvironment.$current.withValue(environment) {
            let text = try await CoordinatedFiles.read(url) { try String(contentsOf: $0, encoding: .utf8) }.get()
            #expect(text == "one")
            try await CoordinatedFiles.write(url, options: .forReplacing) { try Data("two".utf8).write(to: $0, options: .atomic) }.get()
            #expect(url.text == "two")
            let failed = try await CoordinatedFiles.read(url.sibling("none")) { try String(contentsOf: $0, encoding: .utf8) }
            #expect(throws: CocoaError.self) { try failed.get() }
            // Nothing is held by now.
            try await CoordinatedFiles.claim(
                [.writingIntent(with: url), .readingIntent(with: url.deletingLastPathComponent())], purpose: .init(), timeout: .zero
            ) { urls in #expect(urls == [url, url.deletingLastPathComponent()]) }.get()
        }
        withExtendedLifetime(bench) {}
    }

    @Test("A coordinated upload gets a snapshot that is removed afterwards")
    func upload() async throws {
        let (bench, url, environment) = try note()
        try await GrantEnvironment.$current.withValue(environment) {
            let copy = try await CoordinatedFiles.read(url, options: .forUploading) { copy in
                try await CoordinatedFiles.write(url, timeout: .seconds(5)) { try Data("two".utf8).write(to: $0) }.get()
                #expect(copy.text == "one")
                return copy
            }.get()
            #expect(!FileManager.default.fileExists(atPath: copy.deletingLastPathComponent().path) && url.text == "two")
            let none = try await CoordinatedFiles.read(url.sibling("none"), options: .forUploading) { $0 }
            #expect { try none.get() } throws: { ($0 as? CocoaError)?.code == .fileReadNoSuchFile }
        }
        withExtendedLifetime(bench) {}
    }

    @Test("Concurrent coordinated increments of many tasks lose none")
    func sum() async throws {
        let (bench, url, environment) = try note()
        try Data("0".utf8).write(to: url)
        try await GrantEnvironment.$current.withValue(environment) {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<50 {
                    group.addTask {
                        try await CoordinatedFiles.write(url) { url in
                            let number = Int(try String(contentsOf: url, encoding: .utf8)) ?? 0
                            await Task.yield()
                            try Data("\(number + 1)".utf8).write(to: url)
                        }.get()
                    }
                    group.addTask {
                        // Half a write would be no number.
                        let text = try await CoordinatedFiles.read(url) { try String(contentsOf: $0, encoding: .utf8) }.get()
                        #expect(Int(text) != nil)
                    }
                }
                try await group.waitForAll()
            }
        }
        #expect(url.text == "50")
        withExtendedLifetime(bench) {}
    }

    @Test("Work that would wait for its own claim is refused")
    func nested() async throws {
        let (bench, url, environment) = try note()
        try await GrantEnvironment.$current.withValue(environment) {
            try await CoordinatedFiles.read(url) { url in
                let inner = await #expect(throws: CoordinationError.self) { try await CoordinatedFiles.write(url) { _ in } }
                #expect(inner == .deadlock)
                var error: NSError?
                NSFileCoordinator().coordinate(writingItemAt: url, error: &error) { _ in }
                #expect(error?.code == CocoaError.fileLocking.rawValue)
                // Readers share, also beside a writer that waits for them, and in another task.
                let writer = Task(executorPreference: OwnThreads()) { try await CoordinatedFiles.write(url) { _ in }.get() }
                try waitForClaims(1, on: url)
                try await CoordinatedFiles.read(url) { #expect($0 == url) }.get()
                try await withThrowingTaskGroup(of: Void.self) { group in
                    group.addTask { try await CoordinatedFiles.read(url) { #expect($0 == url) }.get() }
                    try await group.waitForAll()
                }
                return writer
            }.get().value
        }
        withExtendedLifetime(bench) {}
    }

    @Test("Tasks of one work wait for each other's claims")
    func siblings() async throws {
        let (bench, url, environment) = try note()
        try await GrantEnvironment.$current.withValue(environment) {
            let other = url.sibling("other")
            let count = Lock(0)
            try await CoordinatedFiles.read(url) { _ in
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for _ in 0..<20 {
                        group.addTask { try await CoordinatedFiles.write(other) { _ in count.withLock { $0 += 1 } }.get() }
                    }
                    try await group.waitForAll()
                }
            }.get()
            #expect(count.withLock { $0 } == 20)
        }
        withExtendedLifetime(bench) {}
    }

    @Test("A coordination ends when it times out or its task is cancelled")
    func givesUp() async throws {
        let (bench, url, environment) = try note()
        try await GrantEnvironment.$current.withValue(environment) {
            let purpose = CoordinatedFiles.Purpose()
            try await CoordinatedFiles.write(url, purpose: purpose) { _ in
                let late = Task(executorPreference: OwnThreads()) { () -> CoordinationError? in
                    do throws(CoordinationError) {
                        _ = try await CoordinatedFiles.read(url, timeout: .milliseconds(20)) { _ in Issue.record("beside a writer") }
                        return nil
                    } catch {
                        return error
                    }
                }
                #expect(await late.value == .timedOut)
                let waiting = Task(executorPreference: OwnThreads()) { () -> CoordinationError? in
                    do throws(CoordinationError) {
                        _ = try await CoordinatedFiles.read(url) { _ in Issue.record("beside a writer") }
                        return nil
                    } catch {
                        return error
                    }
                }
                try waitForClaims(1, on: url)
                waiting.cancel()
                #expect(await waiting.value == .cancelled)
                try await CoordinatedFiles.read(url, purpose: purpose) { #expect($0 == url) }.get()
            }.get()
        }
        withExtendedLifetime(bench) {}
    }
}

@Suite struct AGrantedDirectoryOfALibrary {
    @Test("A granted directory is found by its contents until it is withdrawn")
    func life() throws {
        let bench = try Bench()
        let url = try bench.plain("folder")
        try Data("one".utf8).write(to: url.appendingPathComponent("note"))
        try bench.program {
            let granted = try GrantedDirectory.grant(url, to: ViewName("kit"), name: "notes")
            #expect(granted.url == url && !granted.isInMount && granted.grant.name.description == "notes")
            #expect(try GrantedDirectory(containing: url.appendingPathComponent("note")).id == granted.id)
            #expect(try GrantedDirectory.all().map(\.id) == [granted.id])
            let bookmark = try granted.bookmark()
            let kept = try JSONDecoder().decode(DirectoryBookmark.self, from: JSONEncoder().encode(bookmark))
            #expect(kept == bookmark)
            let resolved = try kept.resolve()
            #expect(resolved.url == url && resolved.grant?.id == granted.id && !resolved.isStale && !resolved.isInMount)
            #expect(try granted.withAccess { try String(contentsOf: $0.appendingPathComponent("note"), encoding: .utf8) } == "one")
            try granted.revoke()
            #expect(throws: GrantError.self) { try granted.withAccess { _ in Issue.record("after its end") } }
            #expect { try kept.resolve() } throws: { ($0 as? GrantError)?.code == .permission }
            #expect { try GrantedDirectory(containing: url) } throws: { ($0 as? GrantError)?.code == .permission }
            #expect(try GrantedDirectory.all().isEmpty)
        }
    }

    @Test("Each refusal of a granted directory has its error code")
    func refusals() throws {
        let bench = try Bench()
        let url = try bench.plain("folder")
        try bench.program {
            let granted = try GrantedDirectory.grant(url)
            let cases: [(GrantError.Code, () throws -> Void)] = [
                (.alreadyExists, { _ = try GrantedDirectory.grant(url) }),
                (.usage, { _ = try GrantedDirectory.grant(url, name: "a/b") }),
                (.invalidDirectory, { _ = try GrantedDirectory.grant(url.sibling("none")) }),
                (.notFound, { _ = try GrantedDirectory(containing: url.appendingPathComponent("none")) }),
                (.permission, { _ = try DirectoryBookmark(of: url.deletingLastPathComponent()) }),
                (.invalidBookmark, { _ = try DirectoryBookmark(data: Data("no".utf8)) }),
            ]
            for (code, body) in cases { #expect("\(code)") { try body() } throws: { ($0 as? GrantError)?.code == code } }
            try url.remove()
            #expect { try granted.bookmark() } throws: { ($0 as? GrantError)?.code == .notFound }
        }
    }

    @Test("A claim of another task ends with its time-out or its cancellation")
    func otherTask() async throws {
        let bench = try Bench()
        let url = try bench.plain("folder").appendingPathComponent("note")
        try await GrantEnvironment.$current.withValue(GrantEnvironment(store: bench.fixture.base + "/no-store")) {
            let inner = try await CoordinatedFiles.read(url) { url in
                let timed = Task { try await CoordinatedFiles.write(url, timeout: .milliseconds(100)) { _ in } }
                let timedOut = await timed.result
                let cancelled = Task { try await CoordinatedFiles.write(url) { _ in } }
                try waitForClaims(1, on: url)
                cancelled.cancel()
                return [timedOut, await cancelled.result].map { result in
                    if case .failure(let error) = result { error as? CoordinationError } else { CoordinationError?.none }
                }
            }.get()
            #expect(inner == [.timedOut, .cancelled])
        }
    }
}
