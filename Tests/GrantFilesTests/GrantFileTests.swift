import GrantFiles
import GrantModel
import Testing

/// Files that declare grants.
@Suite struct GrantFileTests {
    private func read(_ text: String, home: String? = "/home/ann") throws -> DeclaredGrants {
        var declared = DeclaredGrants()
        try declared.read(Array(text.utf8), file: "f.grants", home: home.map { Array($0.utf8) })
        return declared
    }

    @Test("A grant file declares views and grants")
    func aFileDeclaresViewsAndTheirGrants() throws {
        let declared = try read(
            """
            # nothing is granted to this one
            views = ["empty", "ci"]

            [[grant]]
            view = "ci"
            name = "src"
            path = "/srv/src"
            access = "read-only"
            expires = 2030-01-31T12:00:00+02:00
            coordination = "mandatory"

            [[grant]]
            path = "~/Documents"
            """)
        #expect(Set(declared.views.map(\.description)) == ["empty", "ci", "default"])
        let (first, second) = (declared.grants[0], declared.grants[1])
        #expect(first.view.description == "ci" && first.name?.description == "src" && first.path == Array("/srv/src".utf8))
        #expect(first.access == .readOnly && first.coordination == .mandatory)
        #expect(first.expires == Instant(seconds: 1_896_084_000) && first.place == "f.grants:4")
        #expect(second.view == .standard && second.name == nil && second.path == Array("/home/ann/Documents".utf8))
        #expect(second.access == .readWrite && second.expires == nil && second.place == "f.grants:12")
    }

    @Test(
        "An error in a grant file names its line",
        arguments: [
            ("[[grant]]\npath = \"/a\"\nacess = \"read-only\"", "f.grants:3: unknown key “acess” (did you mean “access”?)"),
            ("[[grant]]\npath = \"a\"", "f.grants:2: the path “a” is not absolute"),
            ("[[grant]]\nname = \"x\"", "f.grants:1: the grant has no path"),
            ("[[grant]]\npath = \"/a\"\naccess = \"writable\"", "f.grants:3: “writable” is unknown for “access”"),
            ("[[grant]]\npath = \"/a\"\nexpires = \"2h\"", "f.grants:3: “expires” is a date with a time"),
            ("[[grant]]\npath = \"/a\"\nexpires = 2500-01-01T00:00:00Z", "f.grants:3: “expires”"),
            ("[[grant]]\npath = 7", "f.grants:2: “path” is text"),
            ("[[grant]]\npath = \"/a\"\nname = \"x/y\"", "f.grants:3: invalid grant name “x/y”"),
            ("[[grant]]\npath = \"/a\"\nview = \"\"", "f.grants:3: invalid view name “”"),
            ("[grant]\npath = \"/a\"", "double brackets"),
            ("views = \"ci\"", "f.grants:1: “views” is a list of names"), ("grants = []", "did you mean “grant”?"),
            ("[[grant]\n", "f.grants:1: this is not TOML"),
            ("x = ", "f.grants:1: this is not TOML"), ("[[grant]]\npathHex = \"2f6\"", "hexadecimal"),
            ("grant = [1]", "a grant is a table"),
            // The parser has an assertion there, or a letter that it does not expect.
            ("views = [1,}", "this is not TOML"), ("[[.grant]]", "this is not TOML"), ("é = 1", "this is not TOML"),
            ("views = é", "this is not TOML"),
        ])
    func whatMakesNoSenseIsSaidWithItsLine(_ text: String, _ message: String) {
        let error = #expect(throws: GrantError.self) { try read(text) }
        #expect(error?.code == .invalidFile && error?.description.contains(message) == true, "\(error?.description ?? "")")
    }

    @Test("A written grant file is read back unchanged")
    func whatIsWrittenReadsAsItWas() throws {
        let names: [[UInt8]] = [
            Array("plain".utf8), Array("quote\" back\\ 'single' é 日本".utf8), [0x66, 0xFF, 0xFE], Array("line\nbreak\ttab".utf8),
        ]
        var grants: [Grant] = []
        for (number, name) in names.enumerated() {
            let bookmark = Bookmark(
                filesystem: FilesystemIdentity(uuid: [], type: "ext4"), handle: nil,
                identity: FileIdentity(inode: 1, generation: nil, birthTime: nil), path: Array("/srv/".utf8) + name, owner: 0,
                created: Instant(seconds: 0))
            grants.append(
                Grant(
                    id: .random(), view: try ViewName("v \(number) “é”"), name: try GrantName(entry: name), bookmark: bookmark,
                    access: number.isMultiple(of: 2) ? .readOnly : .readWrite, created: Instant(seconds: 0),
                    expires: number == 1 ? Instant(nanoseconds: 1_900_000_000_123_456_789) : nil,
                    coordination: number == 3 ? .mandatory : .advisory))
        }
        let text = GrantFileText.of(grants, views: [try ViewName("none")])
        let declared = try read(text)
        #expect(declared.views.count == 5)
        for (grant, read) in zip(grants, declared.grants) {
            #expect(read.view == grant.view && read.name == grant.name && read.path == grant.bookmark.path, "\(text)")
            #expect(read.access == grant.access && read.expires == grant.expires && read.coordination == grant.coordination, "\(text)")
        }
        #expect(declared.grants.count == 4)
    }

    @Test("Several grant files form one declaration")
    func severalFilesAreOneDeclaration() throws {
        var declared = try read("views = [\"a\"]")
        try declared.read(Array("[[grant]]\nview = \"b\"\npath = \"/b\"".utf8), file: "second", home: nil)
        #expect(declared.views.count == 2 && declared.grants[0].place == "second:1")
        #expect(throws: GrantError.self) { try declared.read(Array("[[grant]]\npath = \"~/b\"".utf8), file: "third", home: nil) }
    }

    /// Random bytes, and every beginning of a sound file, are an error or are read, and nothing else happens.
    @Test("A grant file of any bytes is read or refused")
    func anyBytesAreReadOrRefused() throws {
        var generator = SystemRandomNumberGenerator()
        let sound = Array("views = [\"a\"]\n[[grant]]\npath = \"/é\"\nexpires = 2030-01-31T12:00:00.5Z\n".utf8)
        for end in sound.indices {
            var declared = DeclaredGrants()
            try? declared.read(Array(sound[..<end]), file: "f", home: nil)
        }
        let marks = Array("[]{}.=\"'#,\\\n é".utf8)
        for _ in 0..<20_000 {
            var changed = sound
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                let place = Int.random(in: changed.indices, using: &generator)
                switch Int.random(in: 0..<3, using: &generator) {
                case 0: changed[place] = UInt8.random(in: 0...255, using: &generator)
                case 1: changed.insert(marks.randomElement(using: &generator)!, at: place)
                default: changed.removeSubrange(place..<min(place + 3, changed.count - 1))
                }
            }
            var declared = DeclaredGrants()
            try? declared.read(changed, file: "f", home: nil)
        }
    }
}
