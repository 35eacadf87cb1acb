import Foundation
import GrantCoordinator
import GrantSystem
import Synchronization
import TestSupport
import Testing

@testable import GrantKit

/// A document in one process: nothing is mounted.
@Suite(.serialized) @MainActor struct AUIDocument {
    final class Text: UIDocument {
        var text = ""
        var errors: [CocoaError.Code] = []
        override func contents(forType typeName: String) throws -> Any { Data(text.utf8) }
        override func load(fromContents contents: Any, ofType typeName: String?) throws {
            text = String(decoding: contents as? Data ?? Data(), as: UTF8.self)
        }
        override func handleError(_ error: any Error, userInteractionPermitted: Bool) {
            errors.append((error as? CocoaError)?.code ?? .featureUnsupported)
        }
        override var autosaveDelay: Duration { .milliseconds(50) }
        func type(_ more: String) {
            text += more
            updateChangeCount(.done)
        }
    }

    private let bench: Bench
    private let file: URL

    init() throws {
        bench = try Bench()
        file = try bench.plain("documents").appendingPathComponent("text.txt")
        try Data("here".utf8).write(to: file)
    }

    private func check(_ isSo: Bool, sourceLocation: SourceLocation = #_sourceLocation) { #expect(isSo, sourceLocation: sourceLocation) }

    private func eventually(_ what: String, _ condition: () -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(60)
        while !condition() {
            if ContinuousClock.now > deadline { throw TestFailure("not within a minute: \(what)") }
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    @Test("A document reports each change of its state while it opens and closes")
    func life() async throws {
        let document = Text(fileURL: file)
        let states = Mutex<[UInt]>([])
        let observer = NotificationCenter.default.addObserver(forName: UIDocument.stateChangedNotification, object: document, queue: nil) {
            _ in
            MainActor.assumeIsolated { states.withLock { $0.append(document.documentState.rawValue) } }
        }
        defer { NotificationCenter.default.removeObserver(observer) }
        #expect(document.documentState == .closed && document.localizedName == "text" && document.fileType == "txt")
        check(await document.open() && document.text == "here" && document.documentState == .normal)
        #expect(document.fileModificationDate != nil && document.progress == nil)
        check(await document.close() && document.documentState == .closed)
        try await eventually("the last state is told") { states.withLock { $0.last } == 1 }
        // A notification may come after the next change: it says that there was one.
        #expect(states.withLock { $0.first } == 17 && states.withLock { $0.count } == 4, "\(states.withLock { $0 })")
        check(await document.close())
    }

    @Test("A save is atomic and keeps the permissions of the file")
    func saves() async throws {
        let document = Text(fileURL: file)
        _ = await document.open()
        chmod(file.path, 0o640)
        let inode = try FileManager.default.attributesOfItem(atPath: file.path)[.systemFileNumber] as? UInt64
        document.type(" and there")
        #expect(document.hasUnsavedChanges)
        try await eventually("it is saved by itself") { !document.hasUnsavedChanges }
        #expect(file.text == "here and there")
        let attributes = try FileManager.default.attributesOfItem(atPath: file.path)
        #expect(attributes[.posixPermissions] as? Int == 0o640 && attributes[.systemFileNumber] as? UInt64 != inode)
        #expect(try FileManager.default.contentsOfDirectory(atPath: file.deletingLastPathComponent().path) == ["text.txt"])
        check(await document.close())
    }

    @Test("A document that is saved for the first time replaces a file that exists")
    func creates() async throws {
        let other = file.deletingLastPathComponent().appendingPathComponent("other.md")
        let document = Text(fileURL: other)
        document.text = "new"
        check(await document.save(to: other, for: .forCreating) && other.text == "new" && document.documentState == .normal)
        check(await document.save(to: file, for: .forCreating) && file.text == "new" && document.fileURL == file)
        let third = file.deletingLastPathComponent().appendingPathComponent("third.md")
        check(await document.save(to: third, for: .forOverwriting) && document.fileURL == third && document.localizedName == "third")
        check(await document.close())
    }

    @Test("A document that must be new replaces no file")
    func createsNew() async throws {
        let document = Text(fileURL: file)
        check(await !document.performSave(to: file, for: .forCreating, isNew: true))
        #expect(document.errors == [.fileWriteFileExists] && file.text == "here")
    }

    private func status(_ url: URL) throws -> stat {
        var status = stat()
        guard lstat(url.path, &status) == 0 else { throw TestFailure("\(url.path) cannot be looked up") }
        return status
    }

    @Test("A save through a symbolic link replaces the target and keeps the link")
    func link() async throws {
        let link = file.deletingLastPathComponent().appendingPathComponent("link.txt")
        try FileManager.default.createSymbolicLink(atPath: link.path, withDestinationPath: "text.txt")
        chmod(file.path, 0o600)
        let document = Text(fileURL: link)
        check(await document.open() && document.text == "here")
        document.type("!")
        check(await document.close())
        #expect(try file.text == "here!" && status(file).st_mode & 0o7777 == 0o600)
        #expect(try status(link).st_mode & S_IFMT == S_IFLNK && document.fileURL == link)
    }

    @Test("A save through a link without a target fails and keeps the link and the changes")
    func linkWithoutTarget() async throws {
        let link = file.deletingLastPathComponent().appendingPathComponent("link.txt")
        try FileManager.default.createSymbolicLink(atPath: link.path, withDestinationPath: "missing.txt")
        let document = Text(fileURL: link)
        document.text = "new"
        check(await !document.save(to: link, for: .forCreating))
        #expect(document.errors.count == 1 && document.text == "new")
        #expect(try FileManager.default.destinationOfSymbolicLink(atPath: link.path) == "missing.txt")
        try FileManager.default.removeItem(at: link)
        check(await document.save(to: link, for: .forCreating))
        check(await document.close() && link.text == "new")
    }

    @Test("A document in a set-gid directory has the directory's group", .enabled(if: Identity.isRoot, "needs root"))
    func directoryGroup() async throws {
        let directory = file.deletingLastPathComponent()
        chown(directory.path, 0, 2345)
        chmod(directory.path, 0o2775)
        let other = directory.appendingPathComponent("other.txt")
        let document = Text(fileURL: other)
        document.text = "new"
        check(await document.save(to: other, for: .forCreating))
        #expect(try status(other).st_gid == 2345)
        document.type("!")
        check(await document.close())
        #expect(try other.text == "new!" && status(other).st_gid == 2345)
    }

    @Test("A new document gets the mode that the umask leaves")
    func umask() async throws {
        let other = file.deletingLastPathComponent().appendingPathComponent("other.txt")
        let before = Glibc.umask(0o027)
        defer { _ = Glibc.umask(before) }
        let document = Text(fileURL: other)
        check(await document.save(to: other, for: .forCreating))
        #expect(try status(other).st_mode & 0o7777 == 0o640)
        check(await document.close())
    }

    @Test("A save keeps the extended attributes, the ACL and the set-gid bit of a file")
    func attributes() async throws {
        chmod(file.path, 0o2640)
        let descriptor = try FileDescriptor.open(file.path.utf8, O_RDONLY)
        try descriptor.setAttribute("user.tag", to: Array("red".utf8))
        // The user with the id 12345 may read: u::rw-, u:12345:r--, g::r--, m::r--, o::---.
        let entries: [(UInt8, UInt8, UInt32)] = [(1, 6, .max), (2, 4, 12345), (4, 4, .max), (0x10, 4, .max), (0x20, 0, .max)]
        var list: [UInt8] = [2, 0, 0, 0]
        for (tag, rights, id) in entries { list += [tag, 0, rights, 0] + withUnsafeBytes(of: id.littleEndian) { Array($0) } }
        try descriptor.setAttribute("system.posix_acl_access", to: list)
        let document = Text(fileURL: file)
        _ = await document.open()
        document.type("!")
        check(await document.close() && file.text == "here!")
        let saved = try FileDescriptor.open(file.path.utf8, O_RDONLY)
        #expect(try saved.attribute("user.tag", limit: 16) == Array("red".utf8))
        #expect(try saved.attribute("system.posix_acl_access", limit: 256) == list)
        #expect(try status(file).st_mode & 0o7777 == 0o2640)
    }

    @Test("A save by root keeps the owner and the group of a file", .enabled(if: Identity.isRoot, "needs root"))
    func owner() async throws {
        chown(file.path, 1234, 2345)
        let document = Text(fileURL: file)
        _ = await document.open()
        document.type("!")
        check(await document.close() && file.text == "here!")
        #expect(try status(file).st_uid == 1234 && status(file).st_gid == 2345)
    }

    /// Calls a function between writing its file and putting it in the place of the old one.
    final class Interrupted: UIDocument {
        let whenWritten = Mutex<(@Sendable (String) -> Void)?>(nil)
        override func contents(forType typeName: String) throws -> Any { Data("saved".utf8) }
        override func load(fromContents contents: Any, ofType typeName: String?) throws {}
        nonisolated override func writeContents(
            _ contents: Any, to url: URL, for saveOperation: SaveOperation, originalContentsURL: URL?
        ) throws {
            try super.writeContents(contents, to: url, for: saveOperation, originalContentsURL: originalContentsURL)
            whenWritten.withLock { $0 }?(url.path)
        }
    }

    @Test(
        "A save by root gives away no file that another user puts in its place",
        .enabled(if: Identity.isRoot && Machine.plainUser != nil, "needs root and a plain user"))
    func exchanged() async throws {
        let user = try #require(Machine.plainUser)
        let secret = file.deletingLastPathComponent().appendingPathComponent("secret")
        try Data("root only".utf8).write(to: secret)
        chmod(secret.path, 0o600)
        let held = try FileDescriptor.open(secret.path.utf8, O_RDONLY)
        for path in [file.path, file.deletingLastPathComponent().path] { chown(path, user.uid, user.gid) }
        let document = Interrupted(fileURL: file)
        let attempt = Mutex<Int32?>(nil)
        document.whenWritten.withLock {
            $0 = { place in attempt.withLock { $0 = try? Command.run(["mv", "-f", secret.path, place], as: user).status } }
        }
        _ = await document.open()
        document.updateChangeCount(.done)
        check(await document.close() && file.text == "saved")
        #expect(attempt.withLock { $0 } == 1)
        #expect(try held.status().st.st_uid == 0 && status(file).st_uid == user.uid)
        let names = try FileManager.default.contentsOfDirectory(atPath: file.deletingLastPathComponent().path)
        #expect(names.sorted() == ["secret", "text.txt"])
    }

    @Test("An observer on the main queue does not keep a document from being opened")
    func observer() async throws {
        let document = Text(fileURL: file)
        let states = Mutex<[UInt]>([])
        let observer = NotificationCenter.default.addObserver(
            forName: UIDocument.stateChangedNotification, object: document, queue: .main
        ) { _ in MainActor.assumeIsolated { states.withLock { $0.append(document.documentState.rawValue) } } }
        defer { NotificationCenter.default.removeObserver(observer) }
        check(await document.open())
        try await eventually("the states are told") { states.withLock { $0.count } == 3 }
        check(await document.close())
    }

    /// Keeps itself in a directory, and reads and writes by itself.
    final class Bundle: UIDocument {
        var parts: [String: String] = [:]
        private let read = Mutex<[String: String]>([:])
        override func contents(forType typeName: String) throws -> Any { parts }
        nonisolated override func read(from url: URL) throws {
            var found: [String: String] = [:]
            for name in try FileManager.default.contentsOfDirectory(atPath: url.path) {
                found[name] = try String(contentsOf: url.appendingPathComponent(name), encoding: .utf8)
            }
            read.withLock { $0 = found }
        }
        nonisolated override func writeContents(
            _ contents: Any, to url: URL, for saveOperation: SaveOperation, originalContentsURL: URL?
        ) throws {
            try FileManager.default.createDirectory(at: url, withIntermediateDirectories: false)
            for (name, text) in contents as? [String: String] ?? [:] { try Data(text.utf8).write(to: url.appendingPathComponent(name)) }
        }
        override func open(completionHandler: (@MainActor @Sendable (Bool) -> Void)?) {
            super.open { isOpen in
                self.parts = self.read.withLock { $0 }
                completionHandler?(isOpen)
            }
        }
    }

    @Test("A save of a package document replaces its directory as a whole")
    func directory() async throws {
        let place = file.deletingLastPathComponent().appendingPathComponent("notes.bundle")
        let document = Bundle(fileURL: place)
        document.parts = ["a": "one", "b": "two"]
        check(await document.save(to: place, for: .forCreating))
        chmod(place.path, 0o750)
        document.parts = ["b": "three"]
        document.updateChangeCount(.done)
        check(await document.close())
        #expect(try FileManager.default.contentsOfDirectory(atPath: place.path) == ["b"])
        #expect(try status(place).st_mode & 0o7777 == 0o750)
        #expect(try FileManager.default.contentsOfDirectory(atPath: place.deletingLastPathComponent().path).count == 2)
        let again = Bundle(fileURL: place)
        check(await again.open() && again.parts == ["b": "three"])
        check(await again.close())
    }

    @Test("A document is saved before a foreign read and reloaded after a foreign write")
    func others() async throws {
        let document = Text(fileURL: file)
        _ = await document.open()
        document.autosaving?.cancel()
        document.text = "unsaved"
        document.changes += 1
        let read = try await CoordinatedFiles.read(file) { try String(contentsOf: $0, encoding: .utf8) }.get()
        #expect(read == "unsaved" && !document.hasUnsavedChanges)
        try await CoordinatedFiles.write(file) { try Data("theirs".utf8).write(to: $0) }.get()
        try await eventually("it is read again") { document.text == "theirs" }
        check(await document.close())
    }

    @Test(
        "A conflict overwrites no text until it is resolved",
        arguments: [true, false])
    func conflict(mineWins: Bool) async throws {
        let document = Text(fileURL: file)
        _ = await document.open()
        // By a program that does not coordinate.
        try Data("theirs, longer".utf8).write(to: file)
        document.type(" mine")
        try await eventually("it is in conflict") { document.documentState.contains(.inConflict) }
        #expect(file.text == "theirs, longer" && document.text == "here mine")
        check(await !document.autosave())
        check(await !document.close())
        #expect(file.text == "theirs, longer")
        if mineWins {
            check(await document.save(to: file, for: .forOverwriting) && file.text == "here mine")
        } else {
            check(await document.revert(toContentsOf: file) && document.text == "theirs, longer" && !document.hasUnsavedChanges)
        }
        #expect(document.documentState == .normal)
        check(await document.close())
    }

    @Test("A document follows a move and closes when its file is deleted")
    func moved() async throws {
        let document = Text(fileURL: file)
        _ = await document.open()
        let new = file.deletingLastPathComponent().appendingPathComponent("moved.txt")
        let coordinator = NSFileCoordinator()
        coordinator.coordinate(writingItemAt: file, options: .forMoving, writingItemAt: new, error: nil) { from, to in
            try? FileManager.default.moveItem(at: from, to: to)
            coordinator.item(at: from, didMoveTo: to)
        }
        try await eventually("it knows where it is") { document.fileURL.lastPathComponent == "moved.txt" }
        document.type("!")
        try await eventually("it is saved there") { new.text == "here!" }
        #expect(file.text == nil)
        try await CoordinatedFiles.write(new, options: .forDeleting) { try FileManager.default.removeItem(at: $0) }.get()
        try await eventually("it is closed, and can be edited") { document.documentState == .closed }
        #expect(document.text == "here!" && new.text == nil)
    }

    @Test("A document stays closed if its file is deleted as soon as it is saved or read")
    func deletedAtOnce() async throws {
        for turn in 0..<60 {
            let file = file.deletingLastPathComponent().appendingPathComponent("\(turn)")
            try Data("here".utf8).write(to: file)
            let document = Text(fileURL: file)
            check(await document.open())
            let (begun, goOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
            let holder = Thread {
                NSFileCoordinator().coordinate(readingItemAt: file, options: .withoutChanges, error: nil) { _ in
                    begun.signal()
                    goOn.wait()
                }
            }
            holder.start()
            while begun.wait(timeout: .now()) != .success { try await Task.sleep(for: .milliseconds(1)) }
            // Both wait for that reader: the document first.
            if turn.isMultiple(of: 2) { document.text = "there" }
            async let done = turn.isMultiple(of: 2) ? document.save(to: file, for: .forOverwriting) : document.revert(toContentsOf: file)
            try await Task.sleep(for: .milliseconds(5))
            async let deleted: Void = CoordinatedFiles.write(file, options: .forDeleting) { try FileManager.default.removeItem(at: $0) }
                .get()
            try await eventually("both wait") {
                (try? LocalClaims.process.waiting(for: ClaimedItem(path: FilePath.words(file)))) ?? 0 >= (turn.isMultiple(of: 2) ? 2 : 1)
            }
            goOn.signal()
            _ = await done
            try await deleted
            try await eventually("it is closed") { document.documentState.contains(.closed) }
            check(file.text == nil)
        }
    }

    @Test("A document that cannot be read or saved reports why and keeps its changes")
    func fails() async throws {
        let missing = Text(fileURL: file.deletingLastPathComponent().appendingPathComponent("missing"))
        check(await !missing.open() && missing.errors == [.fileReadNoSuchFile] && missing.documentState.contains(.closed))
        let document = Text(fileURL: file)
        _ = await document.open()
        let directory = file.deletingLastPathComponent()
        try directory.move(to: directory.sibling("away"))
        document.type("kept")
        try await eventually("it could not be saved") { document.documentState.contains(.savingError) }
        #expect(document.hasUnsavedChanges && document.errors == [.fileNoSuchFile])
        try directory.sibling("away").move(to: directory)
        check(await document.close() && file.text == "herekept")
    }

    @Test(
        "A document is written in place if its directory permits no new files",
        .enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
    func inPlace() async throws {
        try bench.fixture.grantfs("grant", file.path, "--name", "note").orThrow()
        let shown = URL(fileURLWithPath: try bench.fixture.mount() + "/note")
        try await withEnvironment {
            let document = Text(fileURL: shown)
            check(await document.open() && document.text == "here")
            document.text = "x"
            check(await document.save(to: shown, for: .forOverwriting) && file.text == "x")
            check(await document.close())
        }
    }

    private func withEnvironment(_ body: @MainActor () async throws -> Void) async throws {
        var environment = GrantEnvironment(store: bench.fixture.store)
        environment.timeouts = .long
        try await GrantEnvironment.$current.withValue(environment) { try await body() }
    }
}
