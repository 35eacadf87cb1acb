import Foundation
import GrantControl
import GrantModel
import GrantSystem
import Testing

@testable import GrantAdministration
@testable import GrantMounts

@Suite struct ProbeRequestTests {
    private let bookmark = Bookmark(
        filesystem: FilesystemIdentity(uuid: [1], type: "ext4"), handle: nil, identity: FileIdentity(inode: 1), path: [0x2F, 0xFF],
        owner: 0,
        created: Instant(seconds: 0), tag: .random())

    private var questions: [ProbeRequest] {
        [
            .find(bookmark, heldAt: nil), .find(bookmark, heldAt: [0x2F, 0xFE]), .bookmark(directory: [0x61, 0xFF]), .canonical([0x2F]),
            .tag(bookmark, bookmark.tag), .tag(bookmark, nil),
            .listing(directory: [0x2F, 0xFF]), .links(directory: [0x2F], names: [[0x61], [0xFF]]),
            .document([0x2F, 0xFF], .file), .document([0x2F], .directory),
        ]
    }

    private var answers: [ProbeAnswer] {
        let lost = FoundDirectory(finding: .missing, path: [0x2F, 0xFF], isInTrash: true, copy: nil)
        let copied = FoundDirectory(finding: .replaced, path: nil, isInTrash: false, copy: [0x2F, 0xFF])
        let named = NamedDirectory(bookmark: bookmark, device: DeviceNumber(major: 8, minor: .max), tag: bookmark.tag)
        return [
            .found(lost), .found(copied), .bookmarked(named), .canonical([0x2F, 0xFF]), .tagged(before: nil), .tagged(before: .random()),
            .failed(GrantError(.invalidDirectory, "what", cause: "why", advice: nil)), .errno(Errno(EPERM)), .unresponsive,
            .listed(DirectoryListing(path: [0x2F], directories: [[0x61], [0xFF]], links: [[0x62]])), .links([[0x61]]), .links([]),
        ]
    }

    @Test("Messages of the probe are read back unchanged")
    func readAsTheyWereWritten() {
        for question in questions {
            var writer = BinaryWriter()
            question.write(to: &writer)
            var reader = BinaryReader(writer.bytes[...])
            let read = try? ProbeRequest.read(from: &reader)
            #expect(read.map { "\($0)" } == "\(question)" && reader.isAtEnd)
        }
        for answer in answers {
            var writer = BinaryWriter()
            answer.write(to: &writer)
            var reader = BinaryReader(writer.bytes[...])
            let read = try? ProbeAnswer.read(from: &reader)
            #expect(read.map { "\($0)" } == "\(answer)" && reader.isAtEnd)
        }
    }

    @Test("A truncated message of the probe is refused")
    func areNothingWhenTheyWereCut() {
        for question in questions {
            var writer = BinaryWriter()
            question.write(to: &writer)
            for count in 0..<writer.bytes.count {
                var reader = BinaryReader(writer.bytes[..<count])
                #expect(throws: CodingFlaw.self) { try ProbeRequest.read(from: &reader) }
            }
        }
        for answer in answers {
            var writer = BinaryWriter()
            answer.write(to: &writer)
            for count in 0..<writer.bytes.count {
                var reader = BinaryReader(writer.bytes[..<count])
                #expect(throws: CodingFlaw.self) { try ProbeAnswer.read(from: &reader) }
            }
        }
    }

    /// A helper that says nothing, ends at once, or does not exist.
    @Test("Questions to a failing probe helper are answered")
    func areAnsweredWhateverTheHelperDoes() throws {
        let bench = try Bench()
        let directory = Array(try bench.directory("a").utf8)
        let requests = [ProbeRequest.canonical(directory), .bookmark(directory: directory)]
        let started = DirectoryProbe.helper(program: "sh", arguments: ["sh", "-c", "printf '\\0\\0\\0\\1x' >&3"]).ask(requests)
        #expect(started.map { "\($0)" } == ["unresponsive", "unresponsive"])
        let unable = DirectoryProbe.helper(program: "sh", arguments: ["sh", "-c", "exit 1"]).ask(requests)
        #expect(unable.map { "\($0)" }.first == "\(ProbeAnswer.canonical(directory))")
        #expect(unable.map { "\($0)".hasPrefix("bookmarked") } == [false, true])
        let answers = DirectoryProbe.helper(program: .path(bench.root + "/none"), arguments: ["none"]).ask([.canonical(directory)])
        #expect(answers.map { "\($0)" } == ["\(ProbeAnswer.canonical(directory))"])
    }

    /// A helper that is at work for longer than a filesystem may take, and then answers: it had no processor, perhaps.
    @Test("The late answer of a probe helper counts unless a filesystem hangs")
    func areAnsweredByAHelperThatIsLateForNoFilesystem() throws {
        let bench = try Bench()
        let directory = Array(try bench.directory("a").utf8)
        var writer = BinaryWriter()
        ProbeAnswer.canonical(directory).write(to: &writer)
        let frame = [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: UInt32(writer.bytes.count) >> $0) } + writer.bytes
        let answer = frame.map { "\\0" + String($0, radix: 8) }.joined()
        let works = "end=$((SECONDS + 3)); while ((SECONDS < end)); do :; done"
        // The kernel's mount table belongs to no filesystem, so any caller may wait for it.
        let mounts = "printf '\\0\\0\\0\\2\\0\\1' >&3; sleep 3"
        for (wait, expected) in [
            (works, ProbeAnswer.canonical(directory)), (mounts, .canonical(directory)), ("exec sleep 30", .unresponsive),
        ] {
            let script = "printf '\\0\\0\\0\\1\\0' >&3; \(wait); printf '%b' '\(answer)' >&3; read"
            let answers = DirectoryProbe.helper(program: "bash", arguments: ["bash", "-c", script]).ask([.canonical(directory)])
            #expect(answers.map { "\($0)" } == ["\(expected)"])
        }
    }

    @Test("A path is made canonical by its words alone")
    func aPathIsMadePlainByItsWordsAlone() {
        for (given, plain) in [("/", "/"), ("/a//b/./c/", "/a/b/c"), ("/a/../../b", "/b"), ("/a/b/..", "/a")] {
            #expect(CanonicalPath.plain(Array(given.utf8)) == Array(plain.utf8))
        }
    }
}
