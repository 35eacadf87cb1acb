import Foundation
import GrantModel
import GrantSystem
import Testing

@testable import GrantStore

/// A directory of the test's own, gone with the value.
final class Scratch: Sendable {
    let path: String
    var store: String { path + "/store" }
    var database: String { store + "/grants.sqlite" }

    init() {
        var template = Array((NSTemporaryDirectory() + "/grantfs-test-XXXXXX").utf8CString)
        path = template.withUnsafeMutableBufferPointer { buffer in
            mkdtemp(buffer.baseAddress!)
            return String(cString: realpath(buffer.baseAddress!, nil))
        }
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    func bytes(_ file: String) -> [UInt8] { FileManager.default.contents(atPath: file).map { Array($0) } ?? [] }

    func write(_ bytes: [UInt8], to file: String) {
        let descriptor = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        #expect(descriptor >= 0)
        #expect(Glibc.write(descriptor, bytes, bytes.count) == bytes.count)
        close(descriptor)
    }
}

let tester = Actor(uid: 1000, pid: 42, program: "test")

func name(_ text: String) throws -> GrantName { try GrantName(entry: Array(text.utf8)) }

func sample(_ text: String, view: ViewName = .standard, state: RecordedState = .active, expires: Instant? = nil, rules: GrantRules = .none)
    throws -> Grant
{
    let bookmark = Bookmark(
        filesystem: FilesystemIdentity(uuid: Array(1...16), type: "ext4", fsid: 7), handle: FileHandle(type: 1, bytes: [1, 2, 3]),
        identity: FileIdentity(inode: 12, generation: 3, birthTime: Instant(seconds: 5)), path: Array("/srv/\(text)".utf8), owner: 1000,
        created: Instant(seconds: 9))
    return Grant(
        id: .random(), view: view, name: try name(text), bookmark: bookmark, access: .readWrite, state: state,
        created: Instant(seconds: 10), expires: expires, rules: rules)
}

/// Everything of a grant, to compare.
func text(_ grant: Grant?) -> String { grant.map { String(describing: $0) } ?? "none" }

func code(_ body: () throws -> Void) -> GrantError.Code? {
    do {
        try body()
        return nil
    } catch let error as GrantError {
        return error.code
    } catch {
        Issue.record("not a GrantError: \(error)")
        return nil
    }
}
