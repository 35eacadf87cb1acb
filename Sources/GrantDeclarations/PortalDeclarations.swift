import GrantCommandLine

extension CommandDeclaration {
    package static let portal = CommandDeclaration(
        "portal", "Runs the desktop's portal of documents, as a service of the session.",
        options: [
            OptionDeclaration("replace", help: "takes the name over from the running portal"),
            OptionDeclaration("mountpoint", value: "DIR", help: "where the documents are shown (default: $XDG_RUNTIME_DIR/doc)"),
        ],
        notes: [
            "It owns org.freedesktop.portal.Documents on the session bus. Each document is a grant of the view app: and "
                + "of app:APP for each application that may use it. All other commands work on these grants. "
                + "Permissions are kept in the permission store, where Flatpak's commands look for them.",
            "When it is ended in order the mount ends, and so do documents that were made for this session alone.",
        ], program: .portal)
}
