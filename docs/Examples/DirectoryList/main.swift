// DirectoryList FOLDER list | add DIRECTORY | contents UUID | renew UUID | remove UUID
//
// Keeps bookmarks of directories in FOLDER. `add` grants the directory, in the view `directory-list`, unless it is granted: whoever types it has
// picked it. `list` shows each with where it is now, `stale` when it was moved, or why it cannot be used.
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

/// What a document picker does: the directory that somebody picks is granted, and the program gets its URL.
func pick(_ path: String) throws -> URL {
    let url = URL(fileURLWithPath: path, isDirectory: true)
    // What is granted already, or shown to this program by a mount, is nobody's choice any more.
    if url.startAccessingSecurityScopedResource() {
        url.stopAccessingSecurityScopedResource()
        return url
    }
    return try GrantedDirectory.grant(url, to: ViewName("directory-list")).url
}

var arguments = CommandLine.arguments.dropFirst()
guard let folder = arguments.popFirst(), let command = arguments.popFirst() else {
    fail("usage: DirectoryList FOLDER list | add DIRECTORY | contents UUID | renew UUID | remove UUID", status: 2)
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
    case "add":
        guard let operand else { fail("add needs a directory", status: 2) }
        print(try list.add(try pick(operand)))
    case "contents": try list.contents(of: id()).forEach { print($0) }
    case "renew": try list.renew(id())
    case "remove": try list.remove(id())
    default: fail("no such command: \(command)", status: 2)
    }
} catch {
    fail(DirectoryList.words(for: error))
}
