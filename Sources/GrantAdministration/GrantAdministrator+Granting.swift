import GrantBookmarks
import Glibc
import GrantModel
import GrantStore
import GrantSystem

extension GrantAdministrator {
    /// A directory or file that was checked and may be granted. Nothing has been written yet.
    public struct Proposal: Sendable {
        public let bookmark: Bookmark
        public let name: GrantName
        let mountDevice: DeviceNumber
        /// The tag that the directory has already.
        let tag: DirectoryTag?

        /// Throws `.usage` for a file, which cannot be offered.
        package func requireOfferable() throws(GrantError) {
            if bookmark.document == nil { return }
            throw GrantError(
                .usage, "“\(VisibleText.of(bookmark.path))” is a file, and only directories can be offered",
                advice: "offer the directory it is in, or grant the file")
        }
    }

    /// The cause of `propose`'s error if the path is not a directory.
    public static let isNoDirectory = BookmarkResolver.isNoDirectory

    /// Bookmarks a directory or a file.
    ///
    /// - Parameters:
    ///   - name: The name of the grant. The default is the directory's own.
    ///   - store: The store's directory, which need not exist yet.
    ///   - document: How a file is shown. Files are refused if it is nil.
    /// - Throws: `.invalidDirectory`, also if it overlaps the store's directory or is in a Trash,
    ///   or `.usage` if it has no name.
    public static func propose(
        directory: [UInt8], name: GrantName?, store: String, document: DocumentBookmark.Form? = nil, probe: DirectoryProbe = .inProcess
    ) throws(GrantError) -> Proposal {
        let found = try look(at: directory, document, probe)
        try LoopCheck.check(found.bookmark.path, store: store)
        if Trash.holds(found.bookmark.path) {
            let shown = String(decoding: found.bookmark.path, as: UTF8.self)
            throw GrantError(.invalidDirectory, "“\(shown)” cannot be granted", cause: "it lies in a Trash")
        }
        if let name { return Proposal(bookmark: found.bookmark, name: name, mountDevice: found.device, tag: found.tag) }
        let own = found.bookmark.path.split(separator: UInt8(ascii: "/")).last ?? []
        guard let name = try? GrantName(entry: Array(own)) else {
            throw GrantError(.usage, "the grant needs a name", cause: "the directory has none of its own", advice: "--name NAME")
        }
        return Proposal(bookmark: found.bookmark, name: name, mountDevice: found.device, tag: found.tag)
    }

    /// `form` is how a file is shown. If it is nil, only directories are accepted.
    private static func look(at place: [UInt8], _ form: DocumentBookmark.Form?, _ probe: DirectoryProbe) throws(GrantError)
        -> NamedDirectory
    {
        let directory = place
        switch probe.ask([.bookmark(directory: directory)])[0] {
        case .bookmarked(let named): return named
        case .failed(let error):
            guard error.cause == isNoDirectory, let form else { throw error }
            switch probe.ask([.document(place, form)])[0] {
            case .bookmarked(let named): return named
            case .failed(let error): throw error
            default: throw refusal(place, "its filesystem does not answer")
            }
        default: throw refusal(directory, "its filesystem does not answer")
        }
    }

    /// Grants a proposal. If it throws, nothing is changed.
    ///
    /// - Parameter isTagged: Whether the directory gets a tag.
    /// - Throws: `.invalidDirectory` if the directory contains or lies in the store or one of its
    ///   mounts, or cannot have a tag, or `.alreadyExists` if the name is taken.
    public func grant(
        _ proposal: Proposal, view: ViewName, access: Access, expires: Instant?, isTagged: Bool = false, timeout: Double = standardTimeout
    ) throws(GrantError) -> GrantChange {
        let choice = Choice(proposal, name: proposal.name, view: view, access: access, expires: expires, isTagged: isTagged)
        return try grant([choice], timeout: timeout)[0]
    }

    /// A proposal with the view, name and rights to grant it with.
    public struct Choice: Sendable {
        public var proposal: Proposal
        public var name: GrantName
        public var view: ViewName
        public var access: Access
        public var expires: Instant?
        /// Whether the directory gets a tag.
        public var isTagged: Bool
        public var coordination: Coordination
        public var rules: GrantRules
        /// Whether a person allows it later: see `Grant.isOffered`.
        package var isOffered = false

        public init(
            _ proposal: Proposal, name: GrantName, view: ViewName, access: Access, expires: Instant? = nil, isTagged: Bool = false,
            coordination: Coordination = .advisory, rules: GrantRules = .none
        ) {
            (self.proposal, self.name, self.view, self.access) = (proposal, name, view, access)
            (self.expires, self.isTagged, self.coordination, self.rules) = (expires, isTagged, coordination, rules)
        }
    }

    /// Throws `.invalidDirectory` if the directory contains or lies in a mount of the store.
    public func check(_ proposal: Proposal) throws(GrantError) {
        try LoopCheck(store: store).check(proposal.bookmark.path, device: proposal.mountDevice)
    }

    /// Grants all choices or none. Throws as the other `grant`, as `PolicyJudge.require`, or `.usage` for rules of a file.
    public func grant(_ choices: [Choice], timeout: Double = standardTimeout) throws(GrantError) -> [GrantChange] {
        for choice in choices {
            try check(choice.proposal)
            try choice.rules.requireDirectory(choice.proposal.bookmark)
        }
        try requireAllowed(choices.map { ($0.proposal.bookmark.path, $0.view, $0.access) })
        for choice in choices { try ObeyedFiles.check(choice.proposal.bookmark.path, access: choice.access) }
        let now = GrantAdministrator.now
        var grants: [Grant] = []
        var tagged: [Proposal] = []
        do throws(GrantError) {
            for choice in choices {
                var bookmark = choice.proposal.bookmark
                if choice.isTagged {
                    bookmark.tag = try tag(choice.proposal)
                    if bookmark.tag != choice.proposal.tag { tagged.append(choice.proposal) }
                }
                var grant = Grant(
                    id: .random(), view: choice.view, name: choice.name, bookmark: bookmark, access: choice.access, created: now,
                    expires: choice.expires, coordination: choice.coordination, rules: choice.rules)
                grant.isOffered = choice.isOffered
                grants.append(grant)
            }
            try store.insert(grants, by: actor)
        } catch {
            for proposal in tagged { _ = probe.ask([.tag(proposal.bookmark, proposal.tag)]) }
            throw error
        }
        return try broadcast(grants, timeout)
    }

    /// Returns an existing grant that equals the choice: of the same directory, active, with the
    /// same access, expiry and rules. Returns nil if the name is free. Throws `.alreadyExists`, with
    /// advice, if the name belongs to a different grant.
    public func existing(_ choice: Choice) throws(GrantError) -> Grant? {
        guard let grant = try store.grants(view: choice.view).first(where: { $0.name == choice.name }) else { return nil }
        let (old, new) = (grant.bookmark, choice.proposal.bookmark)
        let which = (choice.view == .standard ? "" : " --view \(choice.view)") + " \(choice.name)"
        let refusal = { (cause: String, advice: String) in
            GrantError(
                .alreadyExists, "the view “\(choice.view)” has a grant named “\(choice.name)” already", cause: cause, advice: advice)
        }
        guard old.filesystem == new.filesystem, old.identity == new.identity, old.document?.form == new.document?.form else {
            let how = old.document.map { $0.form == .file ? ", as a file" : ", as a document's directory" } ?? ""
            throw refusal("it is of \(String(decoding: old.path, as: UTF8.self))\(how)", "choose another with --name, or remove that one")
        }
        let state = grant.state(at: GrantAdministrator.now)
        guard state == .active else {
            throw refusal("it is of this directory, and \(state.rawValue)", "grantfs restore\(which) makes it active again")
        }
        guard grant.isOffered == choice.isOffered else {
            throw refusal(
                "it is of this directory, and \(grant.isOffered ? "only offered" : "not only offered")",
                grant.isOffered ? "grantfs set\(which) --access \(choice.access.rawValue) allows it" : "revoke it and remove it first")
        }
        guard grant.access == choice.access else {
            throw refusal(
                "it is of this directory, and \(grant.access.rawValue)", "grantfs set\(which) --access \(choice.access.rawValue) changes it"
            )
        }
        guard grant.expires == choice.expires else {
            let how = grant.expires == nil ? "never expires" : choice.expires == nil ? "expires" : "expires at another time"
            throw refusal("it is of this directory, and \(how)", "grantfs set\(which) --expires changes it")
        }
        guard grant.rules == choice.rules else {
            let how = grant.rules.isEmpty ? "without rules" : choice.rules.isEmpty ? "with rules" : "with other rules"
            throw refusal(
                "it is of this directory, \(how)",
                "grantfs set\(which) \(choice.rules.isEmpty ? "--no-rules" : "--hide, --protect or --only") changes it")
        }
        guard !choice.isTagged || old.tag != nil else {
            throw refusal("it is of this directory, which it has not tagged", "remove it, and grant it again with --tag")
        }
        return grant
    }

    /// Keeps the directory's tag, unless a grant of another directory has the same: then this directory is a copy, made with its
    /// attributes, and gets a new one.
    private func tag(_ proposal: Proposal) throws(GrantError) -> DirectoryTag {
        let bookmark = proposal.bookmark
        if let tag = proposal.tag {
            let isCopied = try store.grants().contains { grant in
                grant.bookmark.tag == tag
                    && !(grant.bookmark.filesystem == bookmark.filesystem && grant.bookmark.identity == bookmark.identity)
            }
            if !isCopied { return tag }
        }
        let tag = DirectoryTag.random()
        let cause: String
        switch probe.ask([.tag(bookmark, tag)])[0] {
        case .tagged: return tag
        case .errno(let error):
            cause = error == Errno(EOPNOTSUPP) ? "its filesystem takes no extended attributes of users" : "it takes no tag: \(error)"
        default: cause = "its filesystem does not answer"
        }
        throw GrantAdministrator.refusal(bookmark.path, cause, advice: "without --tag it can be granted")
    }

    private static func refusal(_ directory: [UInt8], _ cause: String, advice: String? = nil) -> GrantError {
        GrantError(
            .invalidDirectory, "“\(String(decoding: directory, as: UTF8.self))” cannot be granted", cause: cause, advice: advice)
    }
}
