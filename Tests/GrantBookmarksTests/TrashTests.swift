import Testing

@testable import GrantBookmarks

@Test(
    "A trash is recognised by its path",
    arguments: [
        ("/home/u/.local/share/Trash/files/a", true), ("/home/u/.local/share/Trash/files/a/b", true), ("/mnt/.Trash-1000/files/a", true),
        ("/mnt/.Trash/1000/files/a", true), ("/mnt/.Trash/1000/a", true),
        ("/home/u/.local/share/Trash/files", false), ("/home/u/.local/share/Trash/info/a", false), ("/mnt/.Trash-1000/files", false),
        ("/mnt/.Trash-me/files/a", false), ("/mnt/.Trash-/files/a", false), ("/mnt/.Trash/x/a", false), ("/mnt/Trash/files/a", false),
        ("/", false),
    ])
func aTrashIsKnownByItsPath(_ path: String, _ expected: Bool) {
    #expect(Trash.holds(Array(path.utf8)) == expected)
}
