import GrantModel
import GrantMounts
import GrantStore

/// What a command line of `mount` requests. The command and the daemon read the same words.
package struct MountRequest {
    package let parser: MountOptionParser
    package let options: MountOptions
    package let shown: ShownViews
    package let mountpoint: Mountpoint
    package let storeDirectory: String

    /// The declaration of `mount`.
    package static let declaration =
        CommandDeclaration(
            "mount", "Mounts a view and returns once the mount answers.",
            operands: [OperandDeclaration("VIEW"), OperandDeclaration("MOUNTPOINT")],
            options: [
                OptionDeclaration("options", short: "o", value: "OPTS", help: "mount options, separated by commas", isRepeatable: true),
                OptionDeclaration("new", help: "also a view without grants, which is empty at first"),
                OptionDeclaration(
                    "views", help: "VIEW is a pattern, such as 'build-*': each matching view is mounted in a directory of its name"),
                OptionDeclaration("foreground", short: "f", help: "stay in the foreground"),
                OptionDeclaration("mountpoints", help: "the mountpoints of several views alone", isHidden: true),
                OptionDeclaration("private", help: "the mountpoints are for this user alone", isHidden: true),
                OptionDeclaration(
                    "below", value: "ID", help: "on a mountpoint of that mount of several views or not at all", isHidden: true),
                OptionDeclaration("portal", help: "the documents of the desktop's programs, for grantfs portal", isHidden: true),
                OptionDeclaration("sloppy", help: "pass over unknown mount options", isHidden: true),
                OptionDeclaration("fake", help: "check everything and mount nothing", isHidden: true),
                OptionDeclaration("temporary", value: "FILE", help: "the file of a mount that ends with another command", isHidden: true),
                OptionDeclaration("bound", help: "later grants in a directory of their own, for grantfs bwrap", isHidden: true),
                OptionDeclaration("ready-fd", value: "N", help: "where to say that the mount answers", isHidden: true),
                OptionDeclaration("go-fd", value: "N", help: "tells when to mount", isHidden: true),
                OptionDeclaration("look-fd", value: "N", help: "names directories to inspect before that", isHidden: true),
            ],
            notes: [
                "Mount options: ro, rw, allow_other, default_permissions, nosuid, nodev, noexec, noatime, nodiratime. "
                    + "Of grantfs: store=DIR, submounts, audit, audit-of=KINDS, new, views, recover, "
                    + "cache=shared|exclusive|none, idle=auto|poll|halt, map=INSIDE:OUTSIDE:COUNT, map-groups. Those that mount(8) passes along are accepted. "
                    + "nosuid and nodev are on by default.",
                "A VIEW that no grant names, and none has, is refused, unless --new or the mount option new says that it is meant.",
                "With --views (or the mount option views) each matching view is a mount with its own daemon. A view is mounted when it gets its first grant. "
                    + "grantfs unmount MOUNTPOINT, or umount -R, unmounts all of them.",
                "A dead mount of a view of this store at MOUNTPOINT is cleaned away first.",
            ])

    /// Reads the mount options.
    package static func parser(_ arguments: ParsedArguments) throws(GrantError) -> MountOptionParser {
        var parser = MountOptionParser(isSloppy: arguments.has("sloppy"))
        for list in arguments.options["options"] ?? [] { try parser.read(try ParsedArguments.text(list, "the value of -o")) }
        return parser
    }

    /// Reads the rest. The mountpoint has to exist.
    package init(_ arguments: ParsedArguments, _ parser: MountOptionParser) throws(GrantError) {
        self.parser = parser
        var options = parser.options
        options.isPrivate = arguments.has("private")
        self.options = options
        shown = try MountRequest.shown(arguments, parser)
        mountpoint = try Mountpoint(arguments.operands[1])
        storeDirectory = try StoreLocation.directory(explicit: options.store.map { Array($0.utf8) } ?? arguments.bytes("store"))
    }

    private static func shown(_ arguments: ParsedArguments, _ parser: MountOptionParser) throws(GrantError) -> ShownViews {
        let word = arguments.operands[0]
        let isPortal = arguments.has("portal")
        guard isPortal || arguments.has("views") || parser.hasSeveralViews || arguments.has("mountpoints") else {
            if !parser.isSeparate { return .one(try view(word)) }
            throw GrantError(
                .usage, "the mount option “separate” is for several views", advice: "grantfs mount --views PATTERN MOUNTPOINT")
        }
        if isPortal {
            if !parser.options.recovers { return .documents }
            throw GrantError(
                .usage, "the documents cannot be mounted with -o recover",
                cause: "another daemon would not know which program has which directory", advice: "leave recover out")
        }
        let text = try ParsedArguments.text(word, "the pattern of views")
        do throws(GrantName.Flaw) {
            return .mountpoints(try ViewPattern(text))
        } catch {
            throw GrantError(
                .usage, "invalid pattern of views “\(text)”", cause: error.rawValue,
                advice: "the pattern comes first: grantfs mount --views 'build-*' MOUNTPOINT")
        }
    }

    private static func view(_ word: [UInt8]) throws(GrantError) -> ViewName {
        do {
            return try ParsedArguments.view(named: try ParsedArguments.text(word, "the view's name"))
        } catch {
            guard word.contains(0x2F) else { throw error }
            throw GrantError(.usage, error.message, cause: error.cause, advice: "the view comes first: grantfs mount VIEW MOUNTPOINT")
        }
    }
}
