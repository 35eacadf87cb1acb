import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// The volumes of a store. Each is a view, mounted while containers use it.
///
/// Calls about one volume follow each other, and do not wait for another volume's.
final class Volumes: Sendable {
    private let store: GrantStore
    private let administrator: GrantAdministrator
    private let mounts: VolumeMounts
    /// A lock for each volume that a call is about, and the number of those calls.
    private let turns = Lock<[String: (lock: Lock<Void>, calls: Int)]>([:])
    /// Two new volumes must not take one view.
    private let creation = Lock(())
    /// When each that has users was mounted last for one, of `Clock.monotonic`.
    private let starts = Lock<[String: Int64]>([:])
    /// An engine binds the mount that long after it has asked for it, at most.
    private static let start: Int64 = 30_000_000_000

    init(_ store: GrantStore) throws(GrantError) {
        self.store = store
        administrator = .command(store)
        mounts = try VolumeMounts(store)
        _ = try VolumeRecords(store: store.directory)
    }

    private func inTurn<Result>(_ name: String, _ body: (VolumeRecords) throws(GrantError) -> Result) throws(GrantError) -> Result {
        guard VolumeRecords.isName(name) else { throw Volumes.unknown(name) }
        let turn = turns.withLock { turns in
            let turn = turns[name]?.lock ?? Lock(())
            turns[name] = (turn, (turns[name]?.calls ?? 0) + 1)
            return turn
        }
        defer {
            turns.withLock { turns in
                guard let turn = turns[name] else { return }
                turns[name] = turn.calls == 1 ? nil : (turn.lock, turn.calls - 1)
            }
        }
        let records = try VolumeRecords(store: store.directory)
        return try turn.withLock { _ throws(GrantError) in try body(records) }
    }

    private static func unknown(_ name: String) -> GrantError { GrantError(.notFound, "there is no volume “\(name)” of grantfs") }

    /// Makes a volume. The record comes first, so that an attempt that was interrupted can be repeated or removed.
    func create(_ name: String, _ words: [(name: String, value: String)]) throws(GrantError) {
        guard VolumeRecords.isName(name) else {
            throw GrantError(
                .usage, "invalid name “\(VisibleText.of(Array(name.utf8)))” of a volume",
                cause: "it has up to 128 letters, digits, dots, dashes and underscores, and begins with a letter or digit")
        }
        let options = try VolumeOptions(words)
        try inTurn(name) { records throws(GrantError) in
            var record: VolumeRecord
            if let known = try records.find(name) {
                guard known.options.elementsEqual(words, by: Volumes.isSame) else {
                    throw GrantError(
                        .alreadyExists, "there is a volume “\(name)” with other options", advice: "remove it, or choose another name")
                }
                if known.isMade { return }
                record = known
            } else {
                // A mount without a record is left over, and shows another's view or limits.
                try mounts.end(name)
                let new = VolumeRecord(name: name, options: words, created: Timestamp.text(Instant(nanoseconds: Clock.realtime)))
                try creation.withLock { _ throws(GrantError) in
                    try requireFree(options.view?.description ?? name, isOwn: options.view == nil, records)
                    InjectedFault.stop(at: "volume-claimed")
                    try records.keep(new)
                }
                record = new
            }
            do throws(GrantError) {
                try grant(options, to: try Volumes.view(of: record))
                record.isMade = true
                try records.keep(record)
            } catch {
                // A view that has got a grant stays on record, to be removed.
                if (try? store.grants(view: try Volumes.view(of: record)).isEmpty) ?? false { try? records.remove(name) }
                throw error
            }
        }
    }

    /// As bytes: Swift's comparison of texts takes some for others.
    private static func isSame(_ one: (name: String, value: String), _ other: (name: String, value: String)) -> Bool {
        one.name.utf8.elementsEqual(other.name.utf8) && one.value.utf8.elementsEqual(other.value.utf8)
    }

    /// A volume's own view ends with it, so it must be nothing else's, and no other volume's.
    private func requireFree(_ view: String, isOwn: Bool, _ records: VolumeRecords) throws(GrantError) {
        let cause: String
        if isOwn {
            let isReserved = view == ViewName.standard.description || view == "app" || TemporaryMount.isLabel(view)
            if isReserved {
                cause = "grantfs uses the name itself"
            } else if try !store.grants().allSatisfy({ $0.view.description != view }) {
                cause = "it has grants"
            } else if try store.mounts().contains(where: { $0.view.description == view && $0.isServed(in: store.runDirectory) }) {
                cause = "it is mounted"
            } else if try records.names().contains(where: { (try? records.find($0))?.view.name == view }) {
                cause = "another volume shows it"
            } else {
                return
            }
        } else if (try? records.find(view))?.view.isOwn == true {
            cause = "it ends with the volume “\(view)”"
        } else {
            return
        }
        throw GrantError(
            .alreadyExists, "the view “\(view)” cannot be this volume's", cause: cause,
            advice: isOwn ? "choose another name, or -o view=\(view)" : "use that volume")
    }

    private static func view(of record: VolumeRecord) throws(GrantError) -> ViewName {
        do throws(GrantName.Flaw) {
            return try ViewName(record.view.name)
        } catch {
            throw GrantError(.usage, "invalid view “\(record.view.name)” of a volume", cause: error.rawValue)
        }
    }

    private func grant(_ options: VolumeOptions, to view: ViewName) throws(GrantError) {
        guard let path = options.path else {
            if let shown = options.view { try administrator.requireKnown(shown, advice: "grantfs grant --view \(shown) DIR") }
            return
        }
        let proposal = try GrantAdministrator.propose(
            directory: path, name: options.name, store: store.directory, document: .file, probe: .command)
        try Volumes.requireNoLink(in: path, proposal.bookmark.path)
        if let owners = options.owners { try Volumes.requireOwners(owners, of: path) }
        let now = Instant(nanoseconds: Clock.realtime)
        let choice = GrantAdministrator.Choice(
            proposal, name: proposal.name, view: view, access: options.isReadOnly ? .readOnly : .readWrite,
            expires: try options.span.map { span throws(GrantError) in try Expiry.after(span, now: now) }, rules: options.rules)
        // An attempt that was interrupted may have made it, with another moment at which it ends.
        var former = choice
        let made = try store.grants(view: view).first { $0.name == choice.name }
        if let latest = choice.expires, let end = made?.expires, end <= latest { former.expires = end }
        if try administrator.existing(former) != nil { return }
        _ = try administrator.grant([choice])
    }

    /// A user who may write to a directory above could replace a link, and get another directory into the container.
    private static func requireNoLink(in path: [UInt8], _ resolved: [UInt8]) throws(GrantError) {
        if CanonicalPath.plain(path) == resolved { return }
        throw GrantError(
            .invalidDirectory, "“\(VisibleText.of(path))” cannot be a volume's directory", cause: "there is a link in the path",
            advice: "-o path=\(VisibleText.of(resolved))")
    }

    /// Its mount could not show the directory, and the container would find nothing.
    private static func requireOwners(_ owners: OwnerMap, of path: [UInt8]) throws(GrantError) {
        do throws(Errno) {
            let namespace = try OwnerNamespace(users: owners.userLines, groups: owners.groupLines)
            _ = try namespace.open(try FileDescriptor.openWithoutLinks(path))
            if !owners.has(user: namespace.unmapped.user, group: namespace.unmapped.group) { return }
        } catch {
            throw GrantError(
                .invalidDirectory, "the files of “\(VisibleText.of(path))” cannot have other owners",
                cause: error == Errno(EOPNOTSUPP)
                    ? OwnerNamespace.needed : error == Errno(EINVAL) ? "its filesystem cannot do that" : error.description,
                advice: error == Errno(EPERM) ? "the option “map” is for a plugin of the machine's root" : "leave “map” out")
        }
        throw GrantError(
            .usage, "the files of “\(VisibleText.of(path))” cannot have these owners",
            cause: "the number 65534 stands for all owners that the map does not have", advice: "use numbers of /etc/subuid")
    }

    /// Removes a volume, and withdraws the grants of its own view. Of a damaged record nothing is known, so grants stay.
    func remove(_ name: String) throws(GrantError) {
        try inTurn(name) { records throws(GrantError) in
            var record: VolumeRecord?
            do throws(GrantError) {
                record = try records.find(name)
                if record == nil { throw Volumes.unknown(name) }
            } catch {
                if !records.isDamaged(name) { throw error }
                SystemLog.write(.warning, "volume \(name): \(error.message). The grants of its view stay")
            }
            try mounts.requireUnused(name)
            try requireNoStart(of: name, record)
            try mounts.end(name)
            try mounts.requireEnd(name)
            if let record { try withdraw(record, records) }
            InjectedFault.stop(at: "volume-withdrawn")
            try records.remove(name)
            starts.withLock { $0[name] = nil }
        }
    }

    /// Removes the volume of a container that has ended, if there is one. A process may have got an open file or a directory of it from the container, so
    /// the grants are withdrawn first, and the mount is aborted.
    func end(_ name: String, of container: String) throws(GrantError) {
        try inTurn(name) { records throws(GrantError) in
            guard let record = try records.find(name) else { return }
            guard record.container?.utf8.elementsEqual(container.utf8) == true else {
                throw GrantError(.permission, "the volume “\(name)” is not of the container “\(Terminal.visible(container))”")
            }
            try withdraw(record, records)
            try mounts.abort(name)
            try records.remove(name)
            starts.withLock { $0[name] = nil }
        }
    }

    /// Withdraws the grants of a volume's own view.
    private func withdraw(_ given: VolumeRecord, _ records: VolumeRecords) throws(GrantError) {
        guard given.view.isOwn else { return }
        var record = given
        // Without its grant the volume is incomplete. The mark matters only if the removal is interrupted, so a full disk does not prevent
        // a removal.
        record.isMade = false
        try? records.keep(record)
        let grants = try store.grants(view: try Volumes.view(of: record))
        if !grants.isEmpty { _ = try administrator.remove(grants) }
    }

    /// What an engine has asked for, and not bound yet, nothing else shows.
    private func requireNoStart(of name: String, _ record: VolumeRecord?) throws(GrantError) {
        guard record?.users.isEmpty == false, let start = starts.withLock({ $0[name] }), Clock.monotonic < start + Volumes.start else {
            return
        }
        throw GrantError(
            .mountFailed, "the volume “\(name)” cannot be removed", cause: "a container that uses it is starting",
            advice: "try again in \(Volumes.start / 1_000_000_000) seconds")
    }

    /// Mounts a volume for one more user, and returns where.
    func mount(_ name: String, for user: String) throws(GrantError) -> String {
        try inTurn(name) { records throws(GrantError) in
            guard var record = try records.find(name), record.isMade else { throw Volumes.unknown(name) }
            let isFirst = record.users.isEmpty
            let place = try mounts.begin(name, try Volumes.view(of: record), owners: try VolumeOptions.owners(record.options))
            starts.withLock { $0[name] = Clock.monotonic }
            guard record.users.insert(user).inserted else { return place }
            do throws(GrantError) {
                try records.keep(record)
            } catch {
                if isFirst { try? mounts.end(name) }
                throw error
            }
            return place
        }
    }

    /// Unmounts it after its last user. If it is busy it stays mounted, until it is used or removed next.
    func unmount(_ name: String, for user: String) throws(GrantError) {
        try inTurn(name) { records throws(GrantError) in
            guard var record = try records.find(name) else { throw Volumes.unknown(name) }
            if record.users.remove(user) != nil { try records.keep(record) }
            guard record.users.isEmpty else { return }
            starts.withLock { $0[name] = nil }
            do throws(GrantError) {
                try mounts.end(name)
            } catch {
                SystemLog.write(.warning, "volume \(name): \(Terminal.visible(error.description))")
            }
        }
    }

    /// Where it is mounted, or nil.
    func place(of name: String) throws(GrantError) -> String? {
        guard try VolumeRecords(store: store.directory).find(name) != nil else { throw Volumes.unknown(name) }
        return mounts.place(of: name)
    }

    /// What `inspect` shows.
    func description(of name: String) throws(GrantError) -> [(String, JSON)] {
        guard let record = try VolumeRecords(store: store.directory).find(name) else { throw Volumes.unknown(name) }
        let view = try Volumes.view(of: record)
        let grants = try administrator.list(view: view, all: true)
        return [
            ("CreatedAt", .string(record.created)),
            ("Status", .object([("view", .string(view.description)), ("grants", .array(grants.map { .object(JSON.grant($0)) }))])),
        ]
    }

    func names() throws(GrantError) -> [String] { try VolumeRecords(store: store.directory).names() }
}
