import GrantModel
import Testing

@Suite struct AnEncodedBookmark {
    static let samples = [
        Bookmark(
            filesystem: FilesystemIdentity(uuid: Array(1...16), type: "ext4", bootID: "boot", fsid: .max, source: [0xFF]),
            handle: FileHandle(type: -1, bytes: Array(0..<128)),
            identity: FileIdentity(inode: .max, generation: .max, birthTime: Instant(nanoseconds: .min)),
            path: [0x2F, 0xFF, 0x0A], owner: .max, created: Instant(nanoseconds: .max),
            origin: BookmarkOrigin(
                ancestors: [FileIdentity(inode: 7, birthTime: Instant(seconds: 3)), FileIdentity(inode: 2)], bootID: "boot", madeBy: 1000),
            tag: DirectoryTag(bytes: Array(16..<32))),
        Bookmark(
            filesystem: FilesystemIdentity(uuid: [], type: "fuse.sshfs"), handle: nil, identity: FileIdentity(inode: 1),
            path: [0x2F], owner: 0, created: Instant(seconds: 0)),
        Bookmark(
            filesystem: FilesystemIdentity(uuid: [1], type: "tmpfs"), handle: nil, identity: FileIdentity(inode: 1),
            path: Array("/a/report".utf8), owner: 0, created: Instant(seconds: 0),
            document: (try? GrantName(entry: Array("report".utf8))).map { DocumentBookmark(name: $0, form: .directory) }),
    ]

    @Test("The encoded bookmark of a directory keeps version 3")
    func ofADirectoryIsReadByProgramsThatKnowOfNoFiles() {
        #expect(AnEncodedBookmark.samples.map { $0.encoded()[5] } == [3, 3, 4])
    }

    @Test("An encoded bookmark of an unknown document form is refused")
    func isRefusedWithAFormThatIsNone() {
        #expect(throws: Bookmark.DecodingFlaw.malformed) {
            try Bookmark(encoded: resealed(AnEncodedBookmark.samples[2]) { $0[$0.count - 1] = 2 })
        }
    }

    @Test("An encoded bookmark is read back unchanged", arguments: samples.indices)
    func readsAsItWasWritten(_ index: Int) throws {
        let bookmark = AnEncodedBookmark.samples[index]
        #expect(try Bookmark(encoded: bookmark.encoded()) == bookmark)
    }

    @Test("An encoded bookmark with any flipped bit is refused", arguments: samples.indices)
    func isRefusedWithAnyBitFlipped(_ index: Int) {
        let bookmark = AnEncodedBookmark.samples[index]
        let bytes = bookmark.encoded()
        for bit in 0..<bytes.count * 8 {
            var flipped = bytes
            flipped[bit / 8] ^= 1 << (bit % 8)
            #expect(throws: Bookmark.DecodingFlaw.self) { try Bookmark(encoded: flipped) }
        }
    }

    @Test("A truncated or extended encoded bookmark is refused", arguments: samples.indices)
    func isRefusedWhenCutOrLengthened(_ index: Int) {
        let bookmark = AnEncodedBookmark.samples[index]
        let bytes = bookmark.encoded()
        for count in 0..<bytes.count {
            #expect(throws: Bookmark.DecodingFlaw.self) { try Bookmark(encoded: Array(bytes[..<count])) }
        }
        #expect(throws: Bookmark.DecodingFlaw.self) { try Bookmark(encoded: bytes + [0]) }
    }

    /// The first version ended before the origin, the second before the tag. A sample without them
    /// has a byte for each.
    @Test("An encoded bookmark of an older version is still read", arguments: [(1, 2), (2, 1)])
    func ofAnOlderVersionIsStillRead(_ version: Int, _ missing: Int) throws {
        let bookmark = AnEncodedBookmark.samples[1]
        var old = Array(bookmark.encoded().dropLast(8 + missing))
        old[5] = UInt8(version)
        let sum = SipHash(key0: 0x6772_616e_7466_7320, key1: 0x626f_6f6b_6d61_726b).hash(old)
        #expect(try Bookmark(encoded: old + withUnsafeBytes(of: sum.bigEndian) { Array($0) }) == bookmark)
    }

    @Test("An encoded bookmark with a tag of another length is refused")
    func isRefusedWithATagOfAnotherLength() {
        // The tag is the last field: its length is the fourth byte before its 16.
        #expect(throws: Bookmark.DecodingFlaw.malformed) {
            try Bookmark(
                encoded: resealed(AnEncodedBookmark.samples[0]) {
                    $0.removeLast(); $0[$0.count - 16] = 15
                })
        }
    }

    @Test("An encoded bookmark of a newer version is refused")
    func isRefusedWhenNewer() {
        #expect(throws: Bookmark.DecodingFlaw.newer) { try Bookmark(encoded: resealed(AnEncodedBookmark.samples[0]) { $0[5] = 5 }) }
    }

    @Test("Malformed fields of a bookmark under a right checksum never trap")
    func neverTrapsOnFieldsThatMakeNoSenseUnderARightChecksum() {
        // Every byte to every value of interest: lengths that point outside, flags that are none, a path that is none.
        for sample in AnEncodedBookmark.samples {
            for position in 4..<sample.encoded().count - 8 {
                for value: UInt8 in [0, 1, 0x2F, 0x7F, 0x80, 0xFF] {
                    _ = try? Bookmark(encoded: resealed(sample) { $0[position] = value })
                }
            }
        }
    }

    /// The checksum is public: any program can compute a matching one.
    private func resealed(_ bookmark: Bookmark, _ change: (inout [UInt8]) -> Void) -> [UInt8] {
        var body = Array(bookmark.encoded().dropLast(8))
        change(&body)
        let sum = SipHash(key0: 0x6772_616e_7466_7320, key1: 0x626f_6f6b_6d61_726b).hash(body)
        return body + withUnsafeBytes(of: sum.bigEndian) { Array($0) }
    }
}

@Test("SipHash gives the published vectors")
func sipHashGivesThePublishedVectors() {
    // From the reference implementation's vectors.h: key 00…0f, input 00, 01, …
    let hash = SipHash(key: Array(0..<16))
    #expect(hash?.hash([]) == 0x726f_db47_dd0e_0e31)
    #expect(hash?.hash([0]) == 0x74f8_39c5_93dc_67fd)
    #expect(hash?.hash(Array(0..<15)) == 0xa129_ca61_49be_45e5)
    #expect(SipHash(key: [1]) == nil)
}
