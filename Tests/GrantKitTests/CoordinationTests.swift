import Foundation
import GrantSystem
import TestSupport
import Testing

@testable import GrantKit

/// Among the threads of one program, where no daemon coordinates.
@Suite struct AFileCoordinator {
    private func note() throws -> (Bench, URL, Crew) {
        let bench = try Bench()
        let url = try bench.plain("folder").appendingPathComponent("note")
        try Data("one".utf8).write(to: url)
        return (bench, url, Crew())
    }

    @Test("A coordinator admits readers together and a writer alone, in order")
    func readersAndWriters() throws {
        let (bench, url, crew) = try note()
        try bench.programWithoutStore {
            let go = Semaphore()
            try crew.read(url, as: "r1") { _ in go.wait() }
            try crew.events.wait(for: "r1 in")
            try crew.read(url, as: "r2") { _ in go.wait() }
            try crew.events.wait(for: "r2 in")
            try crew.write(url, as: "w")
            try waitForClaims(1, on: url)
            // An access after a waiting writer waits as well.
            try crew.read(url, as: "r3")
            try waitForClaims(2, on: url)
            #expect(crew.events.all == ["r1 in", "r2 in"])
            go.post()
            go.post()
            crew.finish()
        }
        #expect(crew.events.all.suffix(4) == ["w in", "w out", "r3 in", "r3 out"])
    }

    @Test("A coordination of a directory covers its contents under any name")
    func directories() throws {
        let (bench, url, _) = try note()
        let folder = url.deletingLastPathComponent()
        let link = folder.sibling("link")
        try FileManager.default.createSymbolicLink(atPath: link.path, withDestinationPath: folder.path)
        try bench.programWithoutStore {
            for other in [
                url, folder.appendingPathComponent("new"), link.appendingPathComponent("note"),
                folder.appendingPathComponent("./x/../note"),
            ] {
                let (go, crew) = (Semaphore(), Crew())
                try crew.write(folder, as: "folder") { _ in go.wait() }
                try crew.events.wait(for: "folder in")
                try crew.read(other, as: "other")
                try waitForClaims(1, on: other)
                // An access to a sibling does not wait.
                try crew.write(folder.sibling("beside"), as: "beside")
                try crew.events.wait(for: "beside out")
                go.post()
                crew.finish()
                #expect(crew.events.all.last == "other out")
            }
        }
    }

    @Test("An accessor gets the named URL, or the target of a link on request")
    func places() throws {
        let (bench, url, _) = try note()
        let link = url.sibling("link")
        try FileManager.default.createSymbolicLink(atPath: link.path, withDestinationPath: "note")
        bench.programWithoutStore {
            var error: NSError?
            var seen: [URL] = []
            NSFileCoordinator().coordinate(readingItemAt: url, error: &error) { seen.append($0) }
            NSFileCoordinator().coordinate(readingItemAt: link, error: &error) { seen.append($0) }
            NSFileCoordinator().coordinate(readingItemAt: link, options: .resolvesSymbolicLink, error: &error) { seen.append($0) }
            NSFileCoordinator().coordinate(readingItemAt: url, options: [], writingItemAt: link, options: .forReplacing, error: nil) {
                seen += [$0, $1]
            }
            NSFileCoordinator().coordinate(writingItemAt: url, options: .forMoving, writingItemAt: link, error: nil) { seen += [$0, $1] }
            #expect(error == nil)
            #expect(seen == [url, link, url, url, link, url, link])
            NSFileCoordinator().coordinate(readingItemAt: URL(string: "https://example.org/")!, error: &error) { seen.append($0) }
            #expect(error != nil && seen.count == 7)
        }
    }

    @Test("A coordinator never blocks itself or another coordinator of its purpose")
    func purposes() throws {
        let (bench, url, _) = try note()
        bench.programWithoutStore {
            var count = 0
            let (one, other) = (NSFileCoordinator(), NSFileCoordinator())
            other.purposeIdentifier = one.purposeIdentifier
            // An empty one is not taken.
            other.purposeIdentifier = ""
            one.coordinate(writingItemAt: url, error: nil) { _ in
                one.coordinate(readingItemAt: url, error: nil) { _ in count += 1 }
                other.coordinate(writingItemAt: url, error: nil) { _ in count += 1 }
            }
            #expect(count == 2)
        }
    }

    @Test("A coordination that would deadlock fails with a file-locking error")
    func deadlock() throws {
        let (bench, url, crew) = try note()
        let other = url.sibling("other")
        try bench.programWithoutStore {
            var error: NSError?
            NSFileCoordinator().coordinate(writingItemAt: url, error: nil) { _ in
                NSFileCoordinator().coordinate(readingItemAt: url, error: &error) { _ in Issue.record("both") }
            }
            #expect(error?.code == CocoaError.fileLocking.rawValue && error?.domain == NSCocoaErrorDomain)
            #expect(error?.userInfo[NSUnderlyingErrorKey] as? CoordinationError == .deadlock)
            // Two threads, each of which holds what the other wants.
            let (one, two) = (Semaphore(), Semaphore())
            let events = crew.events
            try crew.write(url, as: "a") { _ in
                one.post()
                two.wait()
                NSFileCoordinator().coordinate(writingItemAt: other, error: nil) { _ in events.add("a has both") }
            }
            try crew.write(other, as: "b") { _ in
                one.wait()
                two.post()
                var error: NSError?
                NSFileCoordinator().coordinate(writingItemAt: url, error: &error) { _ in events.add("b has both") }
            }
            crew.finish()
            // The second was refused, and the first went on.
            #expect(crew.events.all.count { $0.hasSuffix("both") } == 1)
        }
    }

    @Test("A cancelled coordinator fails waiting coordinations and spares a running one")
    func cancelled() throws {
        let (bench, url, crew) = try note()
        try bench.programWithoutStore {
            let go = Semaphore()
            let running = NSFileCoordinator()
            try crew.write(url, as: "w", by: running) { _ in go.wait() }
            try crew.events.wait(for: "w in")
            let coordinator = NSFileCoordinator()
            try crew.read(url, as: "r", by: coordinator)
            try waitForClaims(1, on: url)
            coordinator.cancel()
            running.cancel()
            try crew.events.wait(for: "r failed \(CocoaError.userCancelled.rawValue)")
            go.post()
            try crew.events.wait(for: "w out")
            try crew.read(url, as: "later", by: coordinator)
            crew.finish()
            #expect(crew.events.all.last == "later failed \(CocoaError.userCancelled.rawValue)")
            var error: NSError?
            NSFileCoordinator().coordinate(writingItemAt: url, error: &error) { _ in }
            #expect(error == nil)
        }
    }

    @Test("A prepared batch is held until its completion is called")
    func batch() throws {
        let (bench, url, crew) = try note()
        let other = url.sibling("other")
        try bench.programWithoutStore {
            let coordinator = NSFileCoordinator()
            let done = Lock<(@Sendable () -> Void)?>(nil)
            var inside = 0
            coordinator.prepare(forReadingItemsAt: [url], writingItemsAt: [other], error: nil) { finish in
                coordinator.coordinate(readingItemAt: url, error: nil) { _ in inside += 1 }
                coordinator.coordinate(writingItemAt: other, error: nil) { _ in inside += 1 }
                done.withLock { $0 = finish }
            }
            #expect(inside == 2)
            try crew.write(url, as: "w")
            try waitForClaims(1, on: url)
            done.withLock { $0 }?()
            try crew.events.wait(for: "w out")
            crew.finish()
        }
    }

    @Test("Work on a thread waits for a batch prepared there and ended elsewhere")
    func batchEndedElsewhere() throws {
        let (bench, url, crew) = try note()
        try bench.programWithoutStore {
            let done = Lock<(@Sendable () -> Void)?>(nil)
            NSFileCoordinator().prepare(forReadingItemsAt: [], writingItemsAt: [url], error: nil) { finish in
                done.withLock { $0 = finish }
            }
            try crew.start {
                // The write below waits by now.
                do { try waitForClaims(1, on: url) } catch { Issue.record(error) }
                done.withLock { $0 }?()
            }
            var error: NSError?
            var hasRun = false
            NSFileCoordinator().coordinate(writingItemAt: url, error: &error) { _ in hasRun = true }
            #expect(hasRun && error == nil)
            crew.finish()
        }
    }

    @Test("A batch that would wait for the work in which it is prepared is refused")
    func nestedBatch() throws {
        let (bench, url, _) = try note()
        bench.programWithoutStore {
            var error: NSError?
            NSFileCoordinator().coordinate(readingItemAt: url, error: nil) { _ in
                NSFileCoordinator().prepare(forReadingItemsAt: [], writingItemsAt: [url], error: &error) { $0() }
            }
            #expect(error?.code == CocoaError.fileLocking.rawValue)
        }
    }

    @Test("An asynchronous coordination runs its accessor on the given queue")
    func intents() throws {
        let (bench, url, crew) = try note()
        let other = url.sibling("other")
        let queue = OperationQueue()
        try bench.programWithoutStore {
            let go = Semaphore()
            try crew.write(url, as: "w") { _ in go.wait() }
            try crew.events.wait(for: "w in")
            let intents = [NSFileAccessIntent.readingIntent(with: url), .writingIntent(with: other, options: .forReplacing)]
            let events = crew.events
            NSFileCoordinator().coordinate(with: intents, queue: queue) { error in
                events.add("accessor \(error == nil) \(intents.map(\.url) == [url, other])")
                // Nested work is not blocked by its own access.
                var error: NSError?
                NSFileCoordinator().coordinate(readingItemAt: url, options: .withoutChanges, error: &error) { _ in events.add("nested") }
                if error != nil { events.add("refused") }
            }
            try waitForClaims(1, on: url)
            #expect(events.all == ["w in"])
            go.post()
            try events.wait(for: "accessor true true")
            queue.waitUntilAllOperationsAreFinished()
            // Readers share.
            #expect(events.all.last == "nested")
            crew.finish()
            let coordinator = NSFileCoordinator()
            coordinator.cancel()
            coordinator.coordinate(with: intents, queue: queue) { events.add("failed \(($0 as NSError?)?.code ?? 0)") }
            try events.wait(for: "failed \(CocoaError.userCancelled.rawValue)")
        }
    }

    @Test("A coordination for uploading gets a copy that is removed afterwards")
    func upload() throws {
        let (bench, url, crew) = try note()
        let folder = url.deletingLastPathComponent()
        try bench.programWithoutStore {
            for (item, inside) in [(url, ""), (folder, "/note")] {
                try Data("one".utf8).write(to: url)
                var copy: URL?
                NSFileCoordinator().coordinate(readingItemAt: item, options: .forUploading, error: nil) { uploaded in
                    copy = uploaded
                    // The item is free.
                    NSFileCoordinator().coordinate(writingItemAt: url, error: nil) { try? Data("two".utf8).write(to: $0) }
                    #expect(URL(fileURLWithPath: uploaded.path + inside).text == "one")
                }
                #expect(copy?.lastPathComponent == item.lastPathComponent)
                #expect(copy.map { FileManager.default.fileExists(atPath: $0.deletingLastPathComponent().path) } == false)
            }
            // What the accessor has moved elsewhere is kept, as it was.
            symlink("note", folder.path + "/link")
            chmod(folder.path, 0o750)
            let kept = folder.deletingLastPathComponent().appendingPathComponent("kept")
            NSFileCoordinator().coordinate(readingItemAt: folder, options: .forUploading, error: nil) { uploaded in
                #expect(throws: Never.self) { try FileManager.default.moveItem(at: uploaded, to: kept) }
            }
            #expect(try FileManager.default.destinationOfSymbolicLink(atPath: kept.path + "/link") == "note")
            #expect(try FileManager.default.attributesOfItem(atPath: kept.path)[.posixPermissions] as? Int == 0o750)
            var error: NSError?
            NSFileCoordinator().coordinate(readingItemAt: folder.appendingPathComponent("none"), options: .forUploading, error: &error) {
                _ in
                Issue.record("a copy of nothing")
            }
            #expect(error?.code == CocoaError.fileReadNoSuchFile.rawValue)
        }
        crew.finish()
    }
}
