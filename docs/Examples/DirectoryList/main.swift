// DirectoryList FOLDER list | pick [desktop] | add DIRECTORY | contents UUID | renew UUID | remove UUID
//
// Keeps bookmarks of directories in FOLDER. `pick` asks the user for directories, in the terminal
// or with the desktop's file chooser, and grants them in the view `directory-list`. `add` grants
// the named directory, unless it is granted: the user picked it by typing it.
// `list` shows each directory with its present path, `stale` if it was moved, or the reason why it
// cannot be used.
import Foundation
import GrantKit

func fail(_ text: String, status: Int32 = 1) -> Never {
    FileHandle.standardError.write(Data("DirectoryList: \(text)\n".utf8))
    exit(status)
}

func show(_ entry: DirectoryList.Entry) {
    let place = entry.url?.path ?? "unavailable: \(entry.failure ?? "")"
    print(entry.id, entry.isStale ? "stale" : "-", place, separator: "\t")
}

let view = try ViewName("directory-list")

/// Runs the picker. Apple's program presents a document picker here.
func pick(_ picker: any DirectoryPicker) async throws -> [URL] {
    let picked = try await picker.pick(PickRequest(view: view))
    if picked.isEmpty { fail("nothing was picked") }
    return picked.map(\.url)
}

/// Grants the directory and returns the program's URL of it.
func granted(_ path: String) throws -> URL {
    let url = URL(fileURLWithPath: path, isDirectory: true)
    // A directory that is already granted, or that a mount shows to this program, needs no choice
    // by the user.
    if url.startAccessingSecurityScopedResource() {
        url.stopAccessingSecurityScopedResource()
        return url
    }
    return try GrantedDirectory.grant(url, to: view).url
}

var arguments = CommandLine.arguments.dropFirst()
guard let folder = arguments.popFirst(), let command = arguments.popFirst() else {
    fail("usage: DirectoryList FOLDER list | pick [desktop] | add DIRECTORY | contents UUID | renew UUID | remove UUID", status: 2)
}
let operand = arguments.popFirst()

func id() -> UUID {
    guard let id = operand.flatMap({ UUID(uuidString: $0) }) else { fail("\(command) needs a UUID", status: 2) }
    return id
}

do {
    var list = try DirectoryList(folder: URL(fileURLWithPath: folder, isDirectory: true))
    switch command {
    case "list": list.entries.forEach(show)
    case "pick":
        let picker: any DirectoryPicker = operand == "desktop" ? DesktopPicker() : TerminalPicker()
        for url in try await pick(picker) { print(try list.add(url)) }
    case "add":
        guard let operand else { fail("add needs a directory", status: 2) }
        print(try list.add(try granted(operand)))
    case "contents": try list.contents(of: id()).forEach { print($0) }
    case "renew": try list.renew(id())
    case "remove": try list.remove(id())
    default: fail("no such command: \(command)", status: 2)
    }
} catch {
    fail(DirectoryList.words(for: error))
}
