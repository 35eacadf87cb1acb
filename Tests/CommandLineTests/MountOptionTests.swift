import GrantModel
import Testing

@testable import GrantCommandLine

private func options(_ lists: String..., sloppy: Bool = false) throws(GrantError) -> MountOptions {
    var parser = MountOptionParser(isSloppy: sloppy)
    for list in lists { try parser.read(list) }
    return parser.options
}

@Suite struct MountOptionTests {
    @Test("Neutral mount options equal the defaults")
    func nothingIsTheDefault() throws {
        #expect(try options("") == MountOptions())
        #expect(try options("defaults,rw,nosuid,nodev,default_permissions") == MountOptions())
        #expect(try options("user,noauto,nofail,_netdev,x-systemd.automount,x-gvfs-show,X-mount.mkdir=0755,x-a=b") == MountOptions())
    }

    @Test("Each mount option is read")
    func eachIsRead() throws {
        let all = try options("ro,allow_other,suid,dev,noexec,noatime,nodiratime,submounts,cache=exclusive,store=/a b")
        #expect(all.readOnly && all.allowOther && all.allowSetID && all.allowDevices && all.noExecute && all.noAccessTime && all.submounts)
        #expect(all.noDirectoryAccessTime && all.cache == .exclusive)
        #expect(all.store == "/a b")
    }

    @Test("The map of owners is read, and a wrong one is refused")
    func owners() throws {
        let map = try #require(try options("map=0:100000:65536").owners)
        #expect(map.userLines == "0 100000 65536\n" && map.groupLines == map.userLines)
        let other = try #require(try options("map-groups=0:7:1,map=0:1:1000/1000:0:1").owners)
        #expect(other.userLines == "0 1 1000\n1000 0 1\n" && other.groupLines == "0 7 1\n" && other.userText == "0:1:1000/1000:0:1")
        for wrong in [
            "map", "map=", "map=0", "map=0:1", "map=0:1:2:3", "map=a:1:1", "map=0:1:0", "map=-1:1:1", "map=0:4294967295:1",
            "map=1:0:4294967295",
            "map=0:1:2/1:9:1", "map=0:1:2/9:2:1", "map=0:1:1/", "map-groups=0:1:1", "map=0:1:1,map-groups=x", "map=0:1:1,submounts",
            "map=" + (0..<341).map { "\($0):\($0):1" }.joined(separator: "/"),
        ] {
            #expect(throws: GrantError.self, "\(wrong)") { _ = try options(wrong) }
        }
    }

    @Test("The last of contradicting mount options counts")
    func theLastOneCounts() throws {
        #expect(try options("ro,rw") == MountOptions())
        #expect(try options("rw", "ro").readOnly)
        #expect(try options("suid,dev,noexec,noatime,nodiratime", "nosuid,nodev,exec,atime,diratime") == MountOptions())
    }

    @Test("Escaped commas and backslashes belong to a mount option's value")
    func commasCanBeEscaped() throws {
        #expect(try options("store=/a\\,b\\\\c,ro").store == "/a,b\\c")
    }

    @Test("The mount option `remount` is recognised")
    func remountIsNoticed() throws {
        var parser = MountOptionParser()
        try parser.read("ro,nosuid,nodev,relatime,remount,user_id=0,group_id=0,default_permissions,max_read=1")
        #expect(parser.isRemount)
        #expect(parser.options.readOnly)
    }

    @Test(
        "An unknown or invalid mount option is named and fails with status 2",
        arguments: ["foo", "cache", "cache=", "cache=all", "store=", "store", "store=relative", "ro=1", "allow_othre", "sync"])
    func whatIsUnknownIsNamed(_ word: String) throws {
        let error = #expect(throws: GrantError.self) { try options("rw,\(word)") }
        let name = try #require(word.split(separator: "=").first)
        #expect(error?.exitStatus == 2)
        #expect(error?.description.contains(name) == true)
    }

    @Test("A sloppy mount ignores unknown options but no invalid value")
    func sloppyPassesOverWhatIsUnknown() throws {
        #expect(try options("foo,bar=1,ro", sloppy: true).readOnly)
        #expect(throws: GrantError.self) { try options("cache=all", sloppy: true) }
    }
}
