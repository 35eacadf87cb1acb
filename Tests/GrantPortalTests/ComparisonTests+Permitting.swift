import Foundation
import Glibc
import TestSupport

extension GrantPortalTests.Comparison {
    /// Visible, writable and revoked documents.
    static let permitting: [Row] = [
        (
            "an application with `read` alone writes",
            { session, file in
                let id = try session.host.addFull([file], app: app, ["read"]).id
                return seen(try session.host.write(inApp(session, id, file), "x"))
            }
        ),
        (
            "… with `write` saves by a rename",
            { session, file in
                let id = try session.host.addFull([file], app: app, ["read", "write"]).id
                let place = inApp(session, id, file)
                let answer = try session.host.write(place + ".tmp", "new")
                guard rename(place + ".tmp", place) == 0 else { return answer.errno ?? "rename: \(errno)" }
                return "host “\(text(file) ?? "")”"
            }
        ),
        (
            "an application without a permission reads",
            { session, file in seen(try session.host.read(inApp(session, try session.host.add(file).id, file))) }
        ),
        (
            "the permission to write goes; who has it open writes",
            { session, file in
                let id = try session.host.addFull([file], app: app, ["read", "write"]).id
                let descriptor = open(inApp(session, id, file), O_RDWR)
                defer { close(descriptor) }
                _ = try session.host.call("RevokePermissions", "(ssas)", [id, app, ["write"]])
                return writing(descriptor)
            }
        ),
        (
            "the permission to read goes; who has it open reads",
            { session, file in
                let id = try session.host.addFull([file], app: app, ["read"]).id
                let descriptor = open(inApp(session, id, file), O_RDONLY)
                defer { close(descriptor) }
                _ = try session.host.call("RevokePermissions", "(ssas)", [id, app, ["read"]])
                return reading(descriptor)
            }
        ),
        (
            "the document is deleted; who has it open reads",
            { session, file in
                let id = try session.host.addFull([file], app: app, ["read"]).id
                let descriptor = open(inApp(session, id, file), O_RDONLY)
                defer { close(descriptor) }
                _ = try session.host.call("Delete", "(s)", [id])
                return reading(descriptor)
            }
        ),
        (
            "the permission is removed in the permission store; a new opening",
            { session, file in
                let id = try session.host.addFull([file], app: app, ["read"]).id
                try session.store("SetPermission", "(sbssas)", ["documents", false, id, app, [String]()])
                return try later { seen(try session.host.read(inApp(session, id, file))) }
            }
        ),
        (
            "the same file is added again for the application, with `read` alone: what it may",
            { session, file in
                let id = try session.host.addFull([file], app: app, ["read", "write"]).id
                _ = try session.host.addFull([file], app: app, ["read"])
                return (try session.permissions(of: id)?[app] ?? []).joined(separator: ", ")
            }
        ),
        (
            "the file is renamed on the host; the document",
            { session, file in
                let id = try session.host.add(file).id
                rename(file, file + ".moved")
                return try later { seen(try session.host.read(path(session, id, file))) }
            }
        ),
        (
            "… and `Info`",
            { session, file in
                let id = try session.host.add(file).id
                rename(file, file + ".moved")
                return try later {
                    try session.host.call("Info", "(s)", [id]).texts.first == file + ".moved" ? "where it is" : "where it was"
                }
            }
        ),
        (
            "… and another file is put at its path; the document",
            { session, file in
                let id = try session.host.add(file).id
                rename(file, file + ".moved")
                try later { try "another".write(toFile: file, atomically: false, encoding: .utf8) }
                return try later { seen(try session.host.read(path(session, id, file))) }
            }
        ),
        (
            "a link to another file is put in its place; the document",
            { session, file in
                let secret = try session.file("secret", "secret")
                let id = try session.host.add(file).id
                unlink(file)
                symlink(secret, file)
                return try later { seen(try session.host.read(path(session, id, file))) }
            }
        ),
    ]
}
