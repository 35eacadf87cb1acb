import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantFiles
import GrantModel
import GrantSystem

/// A directory or file that a run grants or offers.
struct RunChoice {
    let proposal: GrantAdministrator.Proposal
    /// Distinct in the run.
    let name: GrantName
    let access: Access
    let rules: GrantRules
    /// Whether a person is asked when it is used.
    let isOffered: Bool

    var path: [UInt8] { proposal.bookmark.path }

    /// Returns the choice to grant it in a view.
    func choice(in view: ViewName) -> GrantAdministrator.Choice {
        var choice = GrantAdministrator.Choice(proposal, name: name, view: view, access: access, rules: rules)
        choice.isOffered = isOffered
        return choice
    }
}

/// Decides what a run grants, before anything is changed.
enum RunChoices {
    /// Returns what to grant, each under a distinct name: directories with the same last name get a number.
    static func proposals(
        _ request: SandboxRequest, in store: String, _ probe: DirectoryProbe
    ) throws(GrantError) -> [RunChoice] {
        var chosen: [RunChoice] = []
        for wish in request.grants {
            // A writable file is shown in a directory of its own, because most programs save by replacing the file.
            let proposal = try GrantAdministrator.propose(
                directory: wish.path, name: nil, store: store, document: wish.access == .readOnly ? .file : .directory, probe: probe)
            if let plain = wish.plainPath, plain != proposal.bookmark.path {
                throw GrantError(
                    .invalidDirectory, "“\(VisibleText.of(wish.path))” of the profile is not granted",
                    cause: "a link leads to “\(VisibleText.of(proposal.bookmark.path))”, and the profile follows none there",
                    advice: "remove that grant from the profile, or the link")
            }
            if wish.isOffered { try proposal.requireOfferable() }
            try ObeyedFiles.check(proposal.bookmark.path, access: wish.access)
            // A tool's own directories are what it needs.
            if wish.access == .readWrite, !wish.isOfTool, proposal.bookmark.document == nil {
                try request.checkWritable(proposal.bookmark.path)
            }
            let (identity, filesystem) = (proposal.bookmark.identity, proposal.bookmark.filesystem)
            if chosen.contains(where: { $0.proposal.bookmark.identity == identity && $0.proposal.bookmark.filesystem == filesystem }) {
                throw GrantError(
                    .alreadyExists, "“\(String(decoding: wish.path, as: UTF8.self))” is granted twice", advice: "leave one --grant out")
            }
            let name = try distinct(proposal.name, from: chosen.map(\.name))
            let rules = try request.rules.followed(by: wish.rules)
            chosen.append(
                RunChoice(
                    proposal: proposal, name: name, access: wish.access, rules: proposal.bookmark.document == nil ? rules : .none,
                    isOffered: wish.isOffered))
        }
        try checkNesting(chosen)
        return chosen
    }

    /// Adds the repositories of git worktrees and submodules, or says that there are some.
    static func addRepositories(
        to chosen: inout [RunChoice], _ isWanted: Bool, in store: String, _ probe: DirectoryProbe
    ) throws(GrantError) {
        var isFound = false
        for choice in chosen where choice.proposal.bookmark.document == nil {
            let path = choice.path
            guard let link = GitLink(path) else { continue }
            isFound = true
            if !isWanted {
                if chosen.contains(where: { MountTable.path(link.place, isAtOrBelow: $0.path) }) { continue }
                Terminal.note("“\(choice.name)” is a git worktree or submodule: git works in it with --worktree")
                continue
            }
            let (repository, inode) = try link.repository()
            if chosen.contains(where: { MountTable.path(repository, isAtOrBelow: $0.path) }) { continue }
            // By way of the repository the program would reach what rules refuse in the directory.
            guard !chosen.contains(where: { MountTable.path($0.path, isAtOrBelow: repository) }) else {
                throw GrantError(
                    .usage, "the repository of “\(VisibleText.of(path))” is not granted",
                    cause: "a directory of --grant lies in “\(VisibleText.of(repository))”", advice: "grant the repository alone")
            }
            let proposal = try GrantAdministrator.propose(directory: repository, name: nil, store: store, probe: probe)
            guard proposal.bookmark.path == repository, proposal.bookmark.identity.inode == inode else {
                throw GrantError(.invalidDirectory, "the repository of “\(VisibleText.of(path))” was moved meanwhile")
            }
            try ObeyedFiles.check(repository, access: choice.access)
            let name = try distinct(proposal.name, from: chosen.map(\.name))
            chosen.append(
                RunChoice(
                    proposal: proposal, name: name, access: choice.access, rules: try ToolProtection.ofRepository(),
                    isOffered: choice.isOffered))
        }
        if isWanted, !isFound {
            throw GrantError(
                .usage, "run: --worktree is for git worktrees and submodules", cause: "no directory of --grant has a file .git",
                advice: "leave it out")
        }
        try checkNesting(chosen)
    }

    /// Returns the name, with a number if it is taken.
    static func distinct(_ wanted: GrantName, from chosen: [GrantName]) throws(GrantError) -> GrantName {
        var (name, number) = (wanted, 1)
        while chosen.contains(name) {
            number += 1
            name = try numbered(wanted, number)
        }
        return name
    }

    /// Throws `.usage` if there are rules and no directory that they are for.
    static func requireDirectory(_ chosen: [RunChoice], _ request: SandboxRequest) throws(GrantError) {
        if request.rules.isEmpty || chosen.contains(where: { $0.proposal.bookmark.document == nil }) { return }
        throw GrantError(
            .usage, "run: --hide, --protect, --only and --protect-tools are for directories of --grant",
            cause: chosen.isEmpty ? "there is no --grant" : "only files are granted",
            advice: chosen.isEmpty ? "grantfs set NAME --hide PATTERN changes a grant of the view" : "leave them out")
    }

    /// Throws `.usage` if a grant gives less than one around it: the program would change its files
    /// by the outer path.
    private static func checkNesting(_ chosen: [RunChoice]) throws(GrantError) {
        for offered in chosen where offered.isOffered {
            let path = offered.path
            let other = chosen.first { other in
                let place = other.path
                return place != path && (MountTable.path(place, isAtOrBelow: path) || MountTable.path(path, isAtOrBelow: place))
            }
            guard let other else { continue }
            throw GrantError(
                .usage, "“\(VisibleText.of(path))” cannot be offered",
                cause: "of it and “\(VisibleText.of(other.path))” one lies in the other",
                advice: "grant or offer the outer one alone")
        }
        for inner in chosen where inner.access == .readOnly {
            let path = inner.path
            let outer = chosen.first {
                $0.access == .readWrite && MountTable.path(path, isAtOrBelow: $0.path)
            }
            guard let outer = outer?.path else { continue }
            throw GrantError(
                .usage, "“\(String(decoding: path, as: UTF8.self))” cannot be granted read-only",
                cause: "it lies in “\(String(decoding: outer, as: UTF8.self))”, which is granted for writing",
                advice: "grant the directories beside it instead, or all of it read-only")
        }
    }

    /// Makes another name for one that is taken.
    static func numbered(_ name: GrantName, _ number: Int) throws(GrantError) -> GrantName {
        let ending = Array("-\(number)".utf8)
        guard let name = try? GrantName(entry: name.bytes.prefix(255 - ending.count) + ending) else {
            throw GrantError(.usage, "invalid grant name “\(name)”")
        }
        return name
    }
}
