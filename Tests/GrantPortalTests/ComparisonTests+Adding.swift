import Foundation
import Glibc
import TestSupport

extension GrantPortalTests.Comparison {
    /// Files that become a document, and files that do not.
    static let adding: [Row] = [
        ("`Add` of a file", { session, file in said(try session.host.add(file)) }),
        ("… and again", { session, file in same(try session.host.add(file), try session.host.add(file)) }),
        ("… without `reuse_existing`", { session, file in same(try session.host.add(file), try session.host.add(file, reuse: false)) }),
        ("… not `persistent`", { session, file in same(try session.host.add(file), try session.host.add(file, persistent: false)) }),
        (
            "… open for reading, not O_PATH",
            { session, file in said(try session.host.call("Add", "(hbb)", [0, true, true], open: [file], flags: Int(O_RDONLY))) }
        ),
        (
            "… with O_NOFOLLOW",
            { session, file in
                said(try session.host.call("Add", "(hbb)", [0, true, true], open: [file], flags: PortalClient.path | Int(O_NOFOLLOW)))
            }
        ),
        ("… of a directory", { session, file in said(try session.host.add((file as NSString).deletingLastPathComponent)) }),
        ("… of a device", { session, _ in said(try session.host.add("/dev/null")) }),
        (
            "… of what lies in the mount of documents",
            { session, file in
                let first = try session.host.add(file)
                return same(first, try session.host.add(path(session, first.id, file)))
            }
        ),
        (
            "… the same, without `reuse_existing`",
            { session, file in said(try session.host.add(path(session, try session.host.add(file).id, file), reuse: false)) }
        ),
        ("`AddFull` with flags that are none", { session, file in said(try session.host.addFull([file], flags: 64)) }),
        ("… with a permission that is none", { session, file in said(try session.host.addFull([file], app: app, ["eat"])) }),
        ("… for a name that is no application's", { session, file in said(try session.host.addFull([file], app: "noapp", ["read"])) }),
        (
            "… of a directory (`export_directory`); a file in it",
            { session, file in
                let directory = (file as NSString).deletingLastPathComponent
                let id = try session.host.addFull([directory], flags: 3 | 8).id
                return seen(try session.host.read("\(session.mountpoint)/\(id)/papers/" + (file as NSString).lastPathComponent))
            }
        ),
        (
            "`AddNamed` of what is not there; its directory",
            { session, file in
                let directory = (file as NSString).deletingLastPathComponent
                let id = try session.host.call("AddNamed", "(haybb)", [0, ["path": "new"], true, false], open: [directory]).id
                let names = try session.host.list("\(session.mountpoint)/\(id)").texts
                return names.isEmpty ? "is empty" : "has \(names.joined(separator: ", "))"
            }
        ),
        (
            "… and writing it",
            { session, file in
                let directory = (file as NSString).deletingLastPathComponent
                let id = try session.host.call("AddNamed", "(haybb)", [0, ["path": "made"], true, false], open: [directory]).id
                let answer = seen(try session.host.write("\(session.mountpoint)/\(id)/made", "x"))
                return "\(answer), host \(text(directory + "/made").map { "“\($0)”" } ?? "nothing")"
            }
        ),
        ("… with a slash", { session, file in said(try named(session, file, ["path": "a/b"])) }),
        ("… with a name that is not UTF-8", { session, file in said(try named(session, file, ["bytes": [97, 255, 0]])) }),
        (
            "… of a symbolic link",
            { session, file in
                symlink(file, file + ".link")
                let name = (file as NSString).lastPathComponent + ".link"
                let answer = try named(session, file, ["path": name])
                return try answer.error ?? "an id; reading: \(seen(session.host.read("\(session.mountpoint)/\(answer.id)/\(name)")))"
            }
        ),
        (
            "`Lookup` of a document",
            { session, file in
                let id = try session.host.add(file)
                return same(id, try session.host.call("Lookup", "(ay)", [["path": file]]))
            }
        ),
        (
            "… of a transient one",
            { session, file in
                let id = try session.host.add(file, persistent: false)
                return same(id, try session.host.call("Lookup", "(ay)", [["path": file]]))
            }
        ),
        ("`Info` of an id that is none", { session, _ in said(try session.host.call("Info", "(s)", ["ffffffff"])) }),
        ("`Delete` of an id that is none", { session, _ in said(try session.host.call("Delete", "(s)", ["ffffffff"])) }),
        (
            "`GetHostPaths` (version 5)",
            { session, file in
                let id = try session.host.add(file).id
                let answer = try session.host.call("GetHostPaths", "(as)", [[id]])
                return answer.error ?? (answer.dictionary[id] as? String == file ? "the path" : "another")
            }
        ),
        (
            "`RetrieveFiles` with a key that is none",
            { session, _ in
                said(
                    try session.host.call(
                        "RetrieveFiles", "(sa{sv})", ["1", [String: String]()], interface: "org.freedesktop.portal.FileTransfer",
                        service: "org.freedesktop.portal.Documents"))
            }
        ),
    ]
}
