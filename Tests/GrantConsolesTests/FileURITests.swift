import GrantModel
import Testing

@testable import GrantDesktop

@Suite struct FileURITests {
    @Test("A file URI is decoded to the bytes of its path")
    func aURIIsAPathOfBytes() {
        let path = { (uri: String) in FileURI.path(Array(uri.utf8)) }
        #expect(path("file:///home/me/A%20b%2Fc") == Array("/home/me/A b/c".utf8))
        #expect(path("file:///x/%ff%FE") == Array("/x/".utf8) + [0xFF, 0xFE])
        #expect(path("FILE://localhost/x") == Array("/x".utf8))
        #expect(path("file:/x") == Array("/x".utf8))
        #expect(path("file:///日本") == Array("/日本".utf8))
    }

    @Test(
        "A URI of another form has no path",
        arguments: [
            "", "file:", "file:x", "file://", "file://server/share", "sftp://host/x", "http:///x", "/x", "file:///x%", "file:///x%4",
            "file:///x%zz",
            "file:///x%00y", "file:///x?y", "file:///x#y",
        ])
    func whatIsNoPathOfThisMachineIsNone(_ uri: String) { #expect(FileURI.path(Array(uri.utf8)) == nil) }

    @Test("The paths of the document portal are refused")
    func whatThePortalShowsToSandboxesIsRefused() throws {
        for path in ["/run/user/1000/doc/a1b2/Documents", "/run/flatpak/doc/a1b2", "/run/user/0/doc"] {
            let error = #expect(throws: GrantError.self) { try DesktopChooser.path(Array("file://\(path)".utf8)) }
            #expect(error?.cause == "it is what the desktop shows of a directory to a sandbox")
        }
        for path in ["/run/user/1000/docs", "/home/run/user/1000/doc", "/run/user/x/doc"] {
            #expect(try DesktopChooser.path(Array("file://\(path)".utf8)) == Array(path.utf8))
        }
    }
}
