// LibraryStress DIRECTORY [PLACE]: many tasks wait, write, present and save, while their grant comes and goes.
// PLACE is a granted directory in a mount. Without it a new directory is granted, and nothing is mounted.
// The thread sanitizer looks on: .ci/sanitize thread.
import Foundation
import GrantKit

final class Presenter: NSObject, NSFilePresenter {
    let presentedItemURL: URL?
    let presentedItemOperationQueue = OperationQueue()
    init(_ url: URL) { presentedItemURL = url }
}

final class Text: UIDocument {
    var text = ""
    override func contents(forType typeName: String) throws -> Any { Data(text.utf8) }
    override func load(fromContents contents: Any, ofType typeName: String?) throws {
        text = String(decoding: contents as? Data ?? Data(), as: UTF8.self)
    }
}

let mounted = CommandLine.arguments.dropFirst(2).first
let place = URL(fileURLWithPath: mounted ?? CommandLine.arguments[1] + "/shared", isDirectory: true)
let note = place.appendingPathComponent("note")
if mounted == nil { try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true) }
try Data("0".utf8).write(to: note)
let granted = mounted == nil ? try GrantedDirectory.grant(place) : try GrantedDirectory(containing: place)

@MainActor func edit() async {
    for round in 0..<10 {
        let document = Text(fileURL: note)
        _ = await document.open()
        document.text = "\(round)"
        document.updateChangeCount(.done)
        let isClosed: Bool = await document.close()
        if !isClosed { _ = await document.revert(toContentsOf: note) }
    }
}

// Many at once: they wait, write, present, come and go, while the grant comes and goes.
await withTaskGroup(of: Void.self) { group in
    for number in 0..<24 {
        group.addTask {
            let presenter = Presenter(number.isMultiple(of: 2) ? note : place)
            for round in 0..<6 {
                NSFileCoordinator.addFilePresenter(presenter)
                _ = try? await CoordinatedFiles.write(note) { try Data("\(number) \(round)".utf8).write(to: $0) }
                let coordinator = NSFileCoordinator(filePresenter: presenter)
                await withCheckedContinuation { done in
                    coordinator.coordinate(with: [.readingIntent(with: note)], queue: OperationQueue()) { _ in done.resume() }
                    if round.isMultiple(of: 7) { coordinator.cancel() }
                }
                if note.startAccessingSecurityScopedResource() { note.stopAccessingSecurityScopedResource() }
                NSFileCoordinator.removeFilePresenter(presenter)
            }
        }
    }
    group.addTask {
        for _ in 0..<10 {
            try? granted.revoke()
            _ = try? granted.restore()
        }
    }
    group.addTask { await edit() }
}
print("done")
