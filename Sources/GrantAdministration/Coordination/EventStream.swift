import GrantControl
import GrantModel
import GrantStore
import GrantSystem

/// An event in a mount.
public struct MountEvent: Sendable, Equatable {
    public enum Kind: String, Sendable {
        case claimWaits, claimGranted, claimEnded, moved, revoked, changed, appeared, removed, restored
        /// More events than the daemon keeps happened while the caller did not listen.
        case missed
        /// The daemon or its mount has ended.
        case ended
    }

    public var mountpoint: [UInt8]
    /// The number of the event, which increases by one with each event of the mount. It is 0 for a
    /// message that is not an event of its own.
    public var number: UInt64
    public var time: Instant
    public var kind: Kind
    public var path: [UInt8]
    public var newPath: [UInt8]?
    public var pid: Int32
    public var text: String
}

/// The events of all mounts of a store. It finds new mounts, and continues after a lost connection where it was. Not thread-safe.
public final class EventStream {
    private struct Source {
        let record: MountRecord
        var client: SessionClient?
        var mark: EventMark?
    }

    private let store: GrantStore
    private let view: ViewName?
    private var sources: [GrantID: Source] = [:]

    /// - Parameter view: If it is not nil, only mounts that show this view are listened to.
    public init(_ store: GrantStore, view: ViewName? = nil) { (self.store, self.view) = (store, view) }

    /// Returns the events since the last call. Waits at most `seconds` for one. The first call starts listening.
    public func next(within seconds: Double) throws(GrantError) -> [MountEvent] {
        let deadline = Clock.deadline(seconds: seconds)
        var events = try listen()
        events += takeAll()
        if !events.isEmpty { return events }
        var set = PollSet()
        for source in sources.values { if let client = source.client { set.add(client.descriptor) } }
        _ = try? set.wait(until: deadline)
        events = takeAll()
        return events
    }

    /// Connects to new mounts, and again to those whose daemon has closed the connection because nothing was read from it for long.
    /// Returns the events of mounts that have ended.
    private func listen() throws(GrantError) -> [MountEvent] {
        let records = try store.servedMounts().filter { record in view.map { record.shows($0) } ?? true }
        var events: [MountEvent] = []
        for (id, source) in sources where source.client == nil && !records.contains(where: { $0.id == id }) {
            sources[id] = nil
            events.append(bare(.ended, source.record.mountpoint))
        }
        for record in records where sources[record.id]?.client == nil {
            let mark = sources[record.id]?.mark
            guard
                let client = try? SessionClient(
                    socket: record.socket, directory: store.runDirectory, deadline: Clock.deadline(seconds: 2)),
                (try? client.send(.watch(since: mark))) != nil
            else { continue }
            sources[record.id] = Source(record: record, client: client, mark: mark)
        }
        return events
    }

    private func takeAll() -> [MountEvent] {
        var events: [MountEvent] = []
        for (id, source) in sources {
            while let client = sources[id]?.client {
                do throws(ControlClient.Failure) {
                    guard let news = try client.next() else { break }
                    handle(news, id, source.record.mountpoint, &events)
                } catch {
                    sources[id]?.client = nil
                }
            }
        }
        return events.sorted { $0.time < $1.time }
    }

    private func handle(_ news: SessionNews, _ id: GrantID, _ mountpoint: [UInt8], _ events: inout [MountEvent]) {
        switch news {
        case .listening(let mark, let hasMissed):
            // If a mark was sent, the events after it follow with numbers of their own.
            if sources[id]?.mark?.epoch != mark.epoch { sources[id]?.mark = mark }
            if hasMissed { events.append(bare(.missed, mountpoint)) }
        case .tells(let event):
            sources[id]?.mark?.number = event.number
            events.append(
                MountEvent(
                    mountpoint: mountpoint, number: event.number, time: event.time, kind: MountEvent.Kind(event.kind), path: event.path,
                    newPath: event.newPath, pid: event.pid, text: event.text))
        case .granted, .waits, .refused, .progress, .presenting, .notPresenting, .asks, .tellsPresenter, .preparing: break
        }
    }

    private func bare(_ kind: MountEvent.Kind, _ mountpoint: [UInt8]) -> MountEvent {
        MountEvent(
            mountpoint: mountpoint, number: 0, time: Instant(nanoseconds: Clock.realtime), kind: kind, path: mountpoint, newPath: nil,
            pid: 0,
            text: "")
    }
}

extension MountEvent.Kind {
    init(_ kind: SessionEvent.Kind) {
        switch kind {
        case .claimWaits: self = .claimWaits
        case .claimGranted: self = .claimGranted
        case .claimEnded: self = .claimEnded
        case .moved: self = .moved
        case .revoked: self = .revoked
        case .changed: self = .changed
        case .appeared: self = .appeared
        case .removed: self = .removed
        case .restored: self = .restored
        }
    }
}
