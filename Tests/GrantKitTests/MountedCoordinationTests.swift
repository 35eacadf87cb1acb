import GrantCoordinator
import Foundation
import GrantSystem
import TestSupport
import Testing

@testable import GrantKit

/// With other processes, through the daemon of a mount.
@Suite(.enabled(if: Machine.hasFUSE, Comment(rawValue: Machine.noFUSE)))
struct AFileCoordinatorAndAMount {
    private func mounted() throws -> (Bench, source: URL, inMount: URL, Crew) {
        let bench = try Bench()
        let source = try bench.granted("docs")
        let mountpoint = try bench.fixture.mount()
        return (bench, source, URL(fileURLWithPath: mountpoint + "/docs", isDirectory: true), Crew())
    }

    /// How many threads of this process have come past each other, and ask the daemon or have its word.
    private func held(_ url: URL) throws -> Int { LocalClaims.process.held(of: try ClaimedItem(path: FilePath.words(url))) }

    @Test("A coordination excludes other processes under either name of the item", arguments: [true, false])
    func otherProcesses(isInMount: Bool) throws {
        let (bench, source, inMount, crew) = try mounted()
        let note = (isInMount ? inMount : source).appendingPathComponent("note")
        try bench.program {
            let other = try bench.fixture.holding("write", isInMount ? source.path : inMount.path)
            try crew.write(note, as: "w") { url in
                crewWrite(url)
            }
            // An access to a sibling does not wait, here and there.
            try crew.write(bench.plain("beside"), as: "beside")
            try crew.events.wait(for: "beside out")
            #expect(try bench.fixture.grantfs("coordinate", "read", note.path, "--timeout", "0", "--", "true").status != 0)
            #expect(!crew.events.all.contains("w in"))
            other.closeInput()
            #expect(other.wait() == 0)
            crew.finish()
            #expect(crew.events.all.last == "w out")
            #expect(source.appendingPathComponent("note").text == "written")
            // The access held here excludes them.
            NSFileCoordinator().coordinate(readingItemAt: note, error: nil) { url in
                #expect(url == note)
                let read = try? bench.fixture.grantfs("coordinate", "read", source.path, "--timeout", "0", "--", "true").status
                let write = try? bench.fixture.grantfs("coordinate", "write", source.path, "--timeout", "0", "--", "true").status
                #expect(read == 0 && write == 1)
            }
            #expect(try bench.fixture.grantfs("coordinate", "write", source.path, "--timeout", "0", "--", "true").status == 0)
        }
    }

    @Test("A coordination is refused while its grant is revoked")
    func revoked() throws {
        let (bench, source, inMount, crew) = try mounted()
        try bench.program {
            let other = try bench.fixture.holding("write", source.path)
            try crew.write(inMount.appendingPathComponent("note"), as: "w")
            try crew.read(source.appendingPathComponent("note"), as: "r")
            try bench.fixture.wait(until: "both wait") { try held(source) + held(inMount) == 2 }
            try bench.fixture.revoke("docs")
            crew.finish()
            #expect(
                Set(crew.events.all) == [
                    "w failed \(CocoaError.fileWriteNoPermission.rawValue)", "r failed \(CocoaError.fileReadNoPermission.rawValue)",
                ])
            other.closeInput()
            var error: NSError?
            NSFileCoordinator().coordinate(readingItemAt: inMount, error: &error) { _ in Issue.record("in a revoked grant") }
            #expect(error?.code == CocoaError.fileReadNoPermission.rawValue)
            try bench.fixture.restore("docs")
            error = nil
            NSFileCoordinator().coordinate(readingItemAt: inMount, error: &error) { _ in }
            #expect(error == nil)
        }
    }

    @Test("A waiting coordination fails when the daemon ends, and later ones succeed")
    func daemonEnds() throws {
        let (bench, source, _, crew) = try mounted()
        try bench.program {
            let other = try bench.fixture.holding("read", source.path)
            try crew.write(source.appendingPathComponent("note"), as: "w")
            // A writer that waits holds up readers.
            try bench.fixture.wait(until: "it waits in the daemon") {
                try bench.fixture.grantfs("coordinate", "read", source.path, "--timeout", "0", "--", "true").status != 0
            }
            try bench.fixture.killDaemon(at: bench.fixture.base + "/mount")
            crew.finish()
            #expect(crew.events.all == ["w failed \(CocoaError.fileWriteUnknown.rawValue)"])
            other.closeInput()
            var error: NSError?
            NSFileCoordinator().coordinate(writingItemAt: source.appendingPathComponent("note"), error: &error) { _ in }
            #expect(error == nil)
        }
    }

    @Test("A batch with granted and other items is held as a whole")
    func mixed() throws {
        let (bench, source, inMount, crew) = try mounted()
        let beside = try bench.plain("beside")
        bench.program {
            var error: NSError?
            NSFileCoordinator().coordinate(readingItemAt: inMount, options: [], writingItemAt: beside, options: [], error: &error) {
                one, other in
                #expect(one == inMount && other == beside)
                #expect((try? bench.fixture.grantfs("coordinate", "write", source.path, "--timeout", "0", "--", "true").status) == 1)
                do { try crew.read(beside, as: "r") } catch { Issue.record(error) }
                do { try waitForClaims(1, on: beside) } catch { Issue.record(error) }
            }
            #expect(error == nil)
            crew.finish()
            #expect(crew.events.all == ["r in", "r out"])
        }
    }

    @Test("A coordination asks presenters on the host and in the mount by their own URLs")
    func presenters() throws {
        let (bench, source, inMount, _) = try mounted()
        let (onHost, mounted) = (Noting(source), Noting(inMount))
        try bench.program {
            for presenter in [onHost, mounted] { NSFileCoordinator.addFilePresenter(presenter) }
            PresenterRegistry.process.settle(within: Timeouts.long.presenter)
            defer { for presenter in [onHost, mounted] { NSFileCoordinator.removeFilePresenter(presenter) } }
            let coordinator = NSFileCoordinator()
            for directory in [source, inMount] {
                NSFileCoordinator().coordinate(
                    readingItemAt: directory.appendingPathComponent("note"), options: .withoutChanges, error: nil
                ) { _ in
                    for presenter in [onHost, mounted] { #expect(presenter.events.all.last == "reader") }
                }
                _ = (onHost.all(), mounted.all())
            }
            let moved = source.sibling("moved")
            var failure: (any Error)?
            coordinator.coordinate(writingItemAt: inMount.appendingPathComponent("note"), options: .forMoving, error: nil) { url in
                let place = url.sibling("renamed")
                do { try url.move(to: place) } catch { failure = error }
                coordinator.item(at: url, didMoveTo: place)
            }
            #expect(failure == nil)
            for presenter in [onHost, mounted] { try presenter.events.wait(for: "moved note to renamed") }
            coordinator.coordinate(writingItemAt: source, options: .forMoving, error: nil) { url in
                do { try url.move(to: moved) } catch { failure = error }
                coordinator.item(at: url, didMoveTo: moved)
            }
            #expect(failure == nil)
            try onHost.events.wait(for: "moved to moved")
            #expect(onHost.presentedItemURL?.path == moved.path)
        }
    }

    @Test("A mandatory coordination blocks other programs in the mount")
    func mandatory() throws {
        let (bench, source, inMount, _) = try mounted()
        try bench.fixture.grantfs("set", "docs", "--coordination", "mandatory").orThrow()
        try bench.program {
            // Not a descendant of this process as far as the daemon can see, since those pass. It
            // waits in the kernel and holds the directory there.
            let stranger = try Child(["setsid", "-f", "sh", "-c", "read x; echo x > \"$0/new\"; echo made", inMount.path])
            // Its parent, which this process has started, is gone.
            #expect(stranger.wait() == 0)
            var error: NSError?
            NSFileCoordinator().coordinate(writingItemAt: inMount, error: &error) { url in
                #expect(url == source)
                stranger.send("go")
                #expect(stranger.line(within: 0.5) == nil)
                do {
                    try Command.run(["touch", url.path + "/own"]).orThrow()
                } catch {
                    Issue.record(error)
                }
                #expect(!FileManager.default.fileExists(atPath: source.path + "/new"))
            }
            #expect(error == nil)
            #expect(stranger.line() == "made")
            #expect(FileManager.default.fileExists(atPath: source.path + "/new"))
        }
    }

    @Test("An accessor gets a place in the mount if the caller named one")
    func terms() throws {
        let (bench, source, inMount, _) = try mounted()
        try FileManager.default.createSymbolicLink(atPath: source.path + "/link", withDestinationPath: "note")
        bench.program {
            var seen: [String] = []
            NSFileCoordinator().coordinate(readingItemAt: inMount, error: nil) { seen.append($0.path) }
            NSFileCoordinator().coordinate(
                readingItemAt: inMount.appendingPathComponent("link"), options: .resolvesSymbolicLink, error: nil
            ) { seen.append($0.path) }
            NSFileCoordinator().coordinate(writingItemAt: inMount.appendingPathComponent("new"), error: nil) { seen.append($0.path) }
            NSFileCoordinator().coordinate(writingItemAt: source.appendingPathComponent("new"), error: nil) { seen.append($0.path) }
            #expect(seen == [inMount.path, inMount.path + "/note", inMount.path + "/new", source.path + "/new"])
        }
    }
}

private func crewWrite(_ url: URL) {
    do { try Data("written".utf8).write(to: url) } catch { Issue.record(error) }
}
