import Glibc
import GrantAdministration
import GrantModel
import GrantSystem

/// Reports changes by programs that do not coordinate to presenters.
///
/// It watches directories (inotify(7)) where a presenter names its item, and on the host. A change through another mount, or by
/// another machine, is not reported there. Where nothing can be watched, presenters receive events of coordinated work only.
///
/// Locking: `reading` is held while news are read, and `state` for an access, also within
/// `reading`.
final class PlainChanges: Sendable {
    static let process = PlainChanges()

    private struct Watched: Sendable {
        weak let presenter: RegisteredPresenter?
        /// The directory on the host, and where it is watched.
        let host: [UInt8]
        let place: [UInt8]
        /// The name to watch, or nil for everything below.
        let name: [UInt8]?
    }

    private struct State {
        var watch: ChangeWatch?
        var hasFailed = false
        /// By the watch's key of the directory.
        var watched: [UInt64: [Watched]] = [:]
    }

    private let state = Lock(State())
    /// The buffer for news.
    private let reading = Lock([UInt8](repeating: 0, count: 1 << 16))

    /// How many directories are watched for one presenter.
    private static let maxDirectories = 2000

    /// Watches the item of a presenter, at `path` on the host and where it is `named`. Earlier
    /// watches of this presenter end.
    func watch(_ presenter: RegisteredPresenter, at path: [UInt8], named: [UInt8]) {
        forget(presenter)
        guard let watch = opened() else { return }
        var left = Self.maxDirectories
        for place in path == named ? [path] : [named, path] {
            if (try? BookmarkMaker.look(place))?.isDirectory == true {
                add(presenter, tree: place, host: path, watch, &left)
            } else {
                let name = CanonicalPath.lastName(of: place)
                add(
                    Watched(
                        presenter: presenter, host: CanonicalPath.parent(of: path), place: CanonicalPath.parent(of: place), name: name),
                    watch)
            }
        }
    }

    func forget(_ presenter: RegisteredPresenter) {
        state.withLock { state in
            for (key, watched) in state.watched {
                let rest = watched.filter { $0.presenter != nil && $0.presenter !== presenter }
                if rest.count == watched.count { continue }
                state.watched[key] = rest.isEmpty ? nil : rest
                if rest.isEmpty { state.watch?.remove(directory: key, isGone: false) }
            }
        }
    }

    /// Hands on everything that has happened by now. What another thread reads at this moment is handed on as well when this returns.
    func takeNews() {
        guard let watch = state.withLock({ $0.watch }) else { return }
        reading.withLock { buffer in
            guard watch.hasPending else { return }
            buffer.withUnsafeMutableBytes { bytes in watch.drain(into: bytes) { handle($0, watch) } }
        }
    }

    /// The watch, with a thread that reads it. It is nil if inotify(7) cannot be used.
    private func opened() -> ChangeWatch? {
        let (watch, isNew) = state.withLock { state -> (ChangeWatch?, Bool) in
            if state.watch != nil || state.hasFailed { return (state.watch, false) }
            state.watch = try? ChangeWatch(.directories)
            state.hasFailed = state.watch == nil
            return (state.watch, state.watch != nil)
        }
        guard isNew, let watch else { return watch }
        let thread = try? WorkerThread.start("changes") { [self] in
            while true {
                watch.wait(milliseconds: -1)
                takeNews()
            }
        }
        thread?.detach()
        return watch
    }

    /// Adds a directory and those below it. Links are not followed.
    private func add(_ presenter: RegisteredPresenter, tree place: [UInt8], host: [UInt8], _ watch: ChangeWatch, _ left: inout Int) {
        guard left > 0, add(Watched(presenter: presenter, host: host, place: place, name: nil), watch) else { return }
        left -= 1
        guard let directory = try? FileDescriptor.open(place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK),
            let listing = try? directory.subdirectories(limit: left)
        else { return }
        for entry in listing.found {
            let name = Array(entry.name)
            add(presenter, tree: CanonicalPath.join(place, name), host: CanonicalPath.join(host, name), watch, &left)
        }
    }

    @discardableResult private func add(_ watched: Watched, _ watch: ChangeWatch) -> Bool {
        guard let directory = try? FileDescriptor.open(watched.place, OpenFlags.path | O_DIRECTORY) else { return false }
        return state.withLock { state in
            guard let key = watch.add(directory: directory.number) else { return false }
            // A directory that was moved is watched already.
            state.watched[key]?.removeAll { $0.presenter === watched.presenter && $0.name == watched.name }
            state.watched[key, default: []].append(watched)
            return true
        }
    }

    private func handle(_ change: Change, _ watch: ChangeWatch) {
        let kinds = ChangeKinds(rawValue: change.kinds)
        if kinds.contains(.overflow) {
            let all = state.withLock { $0.watched.values.flatMap { $0 } }
            for one in all { one.presenter.map { $0.note($0.path, isNew: false) } }
            return
        }
        guard change.has_directory else { return }
        let watched = state.withLock { state in
            if kinds.contains(.ended) {
                if state.watched.removeValue(forKey: change.directory) != nil { watch.remove(directory: change.directory, isGone: true) }
            }
            return state.watched[change.directory] ?? []
        }
        guard let text = change.name else { return }
        let name = UnsafeBufferPointer(start: text, count: strlen(text)).map { UInt8(bitPattern: $0) }
        for one in watched where one.name == nil || one.name == name {
            guard let presenter = one.presenter else { continue }
            presenter.note(CanonicalPath.join(one.host, name), isNew: kinds.contains(.names))
            guard one.name == nil, kinds.contains(.names) else { continue }
            // The filesystem may not answer, and news must not wait for it.
            try? WaitingThreads.process.run { [self] in
                let place = CanonicalPath.join(one.place, name)
                guard (try? BookmarkMaker.look(place))?.isDirectory == true else { return }
                var left = Self.maxDirectories
                add(presenter, tree: place, host: CanonicalPath.join(one.host, name), watch, &left)
            }
        }
    }
}
