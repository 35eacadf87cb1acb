import Glibc
import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantStore
import GrantSystem

/// A view for one sandbox that bubblewrap makes, mounted as long as that runs.
///
/// The sandbox shows single directories of the mount (`ShownViews.bound`), and not the mount: by way of that the program would reach
/// what other options of the command line protect or hide in a granted directory.
struct BubblewrapSession {
    private let line: BubblewrapLine
    private let binds: BubblewrapBinds
    private let daemon: BubblewrapDaemon
    private let choices: [BubblewrapBinds.Choice]

    init(_ line: BubblewrapLine, _ binds: BubblewrapBinds, _ daemon: BubblewrapDaemon) {
        (self.line, self.binds, self.daemon) = (line, binds, daemon)
        choices = binds.choices
    }

    private struct Grant {
        let choice: BubblewrapBinds.Choice
        let proposal: GrantAdministrator.Proposal
        let name: GrantName
    }

    /// Grants, mounts, and becomes bubblewrap. Nothing is left if it throws.
    func become(_ bubblewrap: BubblewrapProgram, _ variables: [[UInt8]]) throws(GrantError) -> Never {
        let covers = try BubblewrapCovers(line, binds)
        let grants = try grants()
        for bind in binds.granted { try check(bind) }
        var choices: [GrantAdministrator.Choice] = []
        let store = try GrantStore(directory: daemon.store, create: true, survivesPowerLoss: false)
        TemporaryMount.sweep(store)
        let administrator = GrantAdministrator.command(store)
        let mount = try TemporaryMount.create(in: store, hasOwnView: true, label: daemon.label)
        do throws(GrantError) {
            let view = try ParsedArguments.view(named: daemon.label)
            for grant in grants {
                choices.append(
                    GrantAdministrator.Choice(
                        grant.proposal, name: grant.name, view: view, access: grant.choice.access, rules: try covers.rules(of: grant.choice)
                    ))
            }
            _ = try administrator.grant(choices)
            let start = { () throws(GrantError) -> Never in
                let (words, descriptors) = try words(grants, covers, at: Array(mount.mountpoint.utf8), bubblewrap)
                for number in binds.granted.compactMap(\.descriptor) { BubblewrapLine.closeInherited(number) }
                try mount.keepThroughExec()
                try bubblewrap.become(words, variables, descriptors)
            }
            var failure: GrantError?
            try RunCommand.mount(
                view, mount, store, isAudited: false, for: daemon.command, by: daemon.waiting, isBound: true
            ) {
                // The mount answers soon, and bubblewrap waits for it.
                do throws(GrantError) { try start() } catch { failure = error }
            }
            if let failure { throw failure }
            try start()
        } catch {
            try? RunCommand.end(mount, store, daemon.waiting)
            throw error
        }
    }

    /// bubblewrap looks at the sources too, so a filesystem that hangs holds up both.
    private func grants() throws(GrantError) -> [Grant] {
        var made: [Grant] = []
        for choice in choices {
            let proposal = try GrantAdministrator.propose(
                directory: choice.source, name: nil, store: daemon.store, document: .file)
            guard proposal.bookmark.path == choice.source else {
                throw GrantError(.invalidDirectory, "“\(VisibleText.of(choice.source))” was moved meanwhile")
            }
            try ObeyedFiles.check(choice.source, access: choice.access)
            made.append(Grant(choice: choice, proposal: proposal, name: try RunChoices.distinct(proposal.name, from: made.map(\.name))))
        }
        return made
    }

    /// Throws if a source that is given by a descriptor is not the file of its path.
    private func check(_ bind: BubblewrapBinds.Granted) throws(GrantError) {
        guard let identity = bind.identity else { return }
        let file: FileStatus
        do throws(Errno) {
            file = try FileDescriptor.open(bind.source, OpenFlags.path | O_NOFOLLOW).status()
        } catch {
            throw GrantError(.notFound, "bwrap: can't find source path \(VisibleText.of(bind.source))", cause: error.description)
        }
        guard UInt64(file.st.st_dev) == identity.device, UInt64(file.st.st_ino) == identity.inode else {
            throw GrantError(.invalidDirectory, "“\(VisibleText.of(bind.source))” was moved meanwhile")
        }
    }

    /// Returns bubblewrap's words, and the descriptors that they name.
    private func words(
        _ grants: [Grant], _ covers: BubblewrapCovers, at mountpoint: [UInt8], _ bubblewrap: BubblewrapProgram
    ) throws(GrantError) -> (words: [[UInt8]], descriptors: [Int32]) {
        var arguments = BubblewrapArguments(line)
        try binds.prepare(&arguments, bubblewrap)
        arguments.drop(covers.replaced)
        for bind in binds.granted where !covers.replaced.contains(bind.index) {
            guard let choice = BubblewrapBinds.choice(holding: bind.source, among: choices),
                let grant = grants.first(where: { $0.choice.source == choice.source }), let place = line.options[bind.index].values.last
            else { continue }
            let root = CanonicalPath.join(CanonicalPath.join(mountpoint, ShownViews.boundDirectory), grant.name.bytes)
            let option = bind.isReadOnly ? "--ro-bind" : "--bind"
            let below = bind.source.dropFirst(choice.source.count).drop { $0 == 0x2F }
            if below.isEmpty {
                arguments.replace(bind.index, with: [Array(option.utf8), root, place])
            } else if try bubblewrap.valueCount(of: option + "-fd") != nil {
                let number = try open(Array(below), in: root, &arguments)
                arguments.replace(bind.index, with: [Array("\(option)-fd".utf8), Array("\(number)".utf8), place])
            } else {
                arguments.replace(bind.index, with: [Array(option.utf8), CanonicalPath.join(root, Array(below)), place])
            }
        }
        let added = CanonicalPath.join(mountpoint, ShownViews.addedDirectory)
        for (index, place) in binds.showingStore {
            // The program can neither write there nor find the mount there.
            arguments.add([Array("--tmpfs".utf8), place], after: index)
        }
        if let index = placeForAdded(added) { arguments.add([Array("--bind".utf8), added, added], after: index) }
        for (index, place) in binds.showingStore { arguments.add([Array("--remount-ro".utf8), place], after: index) }
        return try arguments.words(command: line.command)
    }

    /// Opens a file in a granted directory: a link that has taken its place by now is not followed, and bubblewrap compares the file
    /// that it binds with the descriptor's.
    private func open(_ path: [UInt8], in root: [UInt8], _ arguments: inout BubblewrapArguments) throws(GrantError) -> Int32 {
        do throws(Errno) {
            let top = try FileDescriptor.open(root, OpenFlags.path | O_DIRECTORY)
            return try arguments.hand(try FileDescriptor.openBeneath(top.number, path, OpenFlags.path))
        } catch {
            throw GrantError(
                .notFound, "bwrap: can't find source path \(VisibleText.of(path)) in a granted directory", cause: error.description)
        }
    }

    /// Returns the option after which the directory of later grants can be shown at its own path, -1 for the first, or nil if there is none:
    /// after the last one that covers the path, if that leaves a directory to write to.
    private func placeForAdded(_ path: [UInt8]) -> Int? {
        var found: Int? = -1
        for (index, option) in line.options.enumerated() {
            guard let place = option.values.last, MountTable.path(path, isAtOrBelow: CanonicalPath.plain([0x2F] + place)) else { continue }
            switch option.name {
            case "--tmpfs": found = index
            case "--bind", "--bind-try", "--dev-bind", "--dev-bind-try", "--ro-bind", "--ro-bind-try", "--bind-fd", "--ro-bind-fd",
                "--overlay", "--tmp-overlay", "--ro-overlay", "--proc", "--dev", "--mqueue", "--file", "--bind-data", "--ro-bind-data",
                "--symlink":
                if binds.absent.contains(index) { continue }
                found = binds.showingStore.contains { $0.index == index && MountTable.path(path, isAtOrBelow: $0.place) } ? index : nil
            default: continue
            }
        }
        return found
    }
}
