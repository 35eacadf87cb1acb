import GrantControl
import Glibc
import GrantModel
import GrantStore
import GrantSystem

/// The presentations of this process in one store. One thread serves all of them, over one
/// connection to each mount.
///
/// Locking: `arrivals` is held for an access, also below `hubs`. Everything else belongs to the thread.
final class PresenterHub: @unchecked Sendable {
    // Sendable: see Locking.
    private enum Arrival {
        case began(PresentedItem)
        case ended(PresentedItem)
        case connected(mount: GrantID, Result<SessionClient, ControlClient.Failure>)
    }

    /// The hubs with a thread, by their store.
    private static let hubs = Lock<[ObjectIdentifier: PresenterHub]>([:])

    private let store: GrantStore
    private let wakening: Wakening
    private let arrivals = Lock<[Arrival]>([])
    private var items: [ObjectIdentifier: PresentedItem] = [:]
    private var links: [GrantID: PresenterLink] = [:]
    private var storeVersion: Int64?
    /// When to look for mounts again.
    private var next: Int64 = 0

    /// The time between two searches for mounts, after a loss and otherwise: nanoseconds.
    private static let (retryInterval, pollInterval): (Int64, Int64) = (200_000_000, 1_000_000_000)

    private init(_ store: GrantStore) throws(Errno) {
        self.store = store
        wakening = try Wakening()
    }

    /// Registers an item with its mounts. Returns the hub that serves it until `end`.
    static func begin(_ item: PresentedItem, in store: GrantStore) throws(Errno) -> PresenterHub {
        try hubs.withLock { hubs throws(Errno) in
            if let hub = hubs[ObjectIdentifier(store)] {
                hub.post(.began(item))
                return hub
            }
            let hub = try PresenterHub(store)
            hub.post(.began(item))
            try WorkerThread.start("presenters") { hub.run() }.detach()
            hubs[ObjectIdentifier(store)] = hub
            return hub
        }
    }

    func end(_ item: PresentedItem) { post(.ended(item)) }

    private func post(_ arrival: Arrival) {
        arrivals.withLock { $0.append(arrival) }
        wakening.wake()
    }

    // MARK: the thread

    private func run() {
        while !isOver() {
            waitForNews()
            for arrival in arrivals.withLock({ arrivals in
                defer { arrivals = [] }
                return arrivals
            }) {
                take(arrival)
            }
            for link in links.values { takeNews(of: link) }
            settleItems()
            if Clock.monotonic >= next { findMounts() }
        }
    }

    /// Whether nothing is left to serve. Nothing more arrives then.
    private func isOver() -> Bool {
        guard items.isEmpty else { return false }
        return Self.hubs.withLock { hubs in
            guard
                arrivals.withLock({ arrivals in
                    !arrivals.contains {
                        if case .began = $0 { true } else { false }
                    }
                })
            else { return false }
            hubs[ObjectIdentifier(store)] = nil
            return true
        }
    }

    private func waitForNews() {
        var set = PollSet()
        set.add(wakening.descriptor)
        for link in links.values { for connection in link.connections { set.add(connection.client.descriptor) } }
        _ = try? set.wait(until: items.values.compactMap(\.settlesUntil).min().map { min($0, next) } ?? next)
        wakening.drain()
    }

    private func take(_ arrival: Arrival) {
        switch arrival {
        case .began(let item):
            if items.isEmpty { (storeVersion, next) = (item.storeVersion, Clock.monotonic + Self.pollInterval) }
            // Its mounts are from another state of the store: all items are compared again.
            if item.storeVersion != storeVersion { (storeVersion, next) = (nil, Clock.monotonic) }
            items[ObjectIdentifier(item)] = item
            for record in item.records { register(item, record) }
        case .ended(let item):
            remove(item)
        case .connected(let mount, let result):
            guard let link = links[mount] else { return }
            link.isConnecting = false
            switch result {
            case .success(let client): link.connections.append(PresenterLink.Connection(client))
            case .failure(let error): fail(link, error.description)
            }
            proceed(link)
        }
    }

    /// Ends the start of items whose mounts have all answered, or whose time is over.
    private func settleItems() {
        for item in items.values where item.settlesUntil != nil {
            if !item.settle(at: Clock.monotonic) { remove(item) }
        }
    }

    // MARK: mounts

    /// Finds new mounts when the store has changed, and tries the lost ones again.
    private func findMounts() {
        let version = try? store.dataVersion()
        let isLost = items.values.contains(where: \.hasLostMount)
        next = Clock.monotonic + (isLost ? Self.retryInterval : Self.pollInterval)
        guard isLost || version == nil || version != storeVersion || items.values.contains(where: \.hasFailedMount),
            let records = try? store.mounts().filter({ $0.isServed(in: store.runDirectory) })
        else {
            return
        }
        let isOther = version != storeVersion
        storeVersion = version
        for item in items.values {
            for record in item.compare(with: records, isOther: isOther) { register(item, record) }
        }
    }

    private func register(_ item: PresentedItem, _ record: MountRecord) {
        let link = links[record.id] ?? PresenterLink(record)
        links[record.id] = link
        link.record = record
        item.isQueued(at: record)
        link.queue.append(item)
        proceed(link)
    }

    /// Sends what waits for the mount, as far as its daemon has answered what was sent before.
    private func proceed(_ link: PresenterLink) {
        while let item = link.queue.first {
            guard let connection = link.connections.last, connection.hasRoom else { return connect(link) }
            guard connection.awaited.count < PresenterLink.maxAwaited else { return }
            link.queue.removeFirst()
            let number = connection.number(for: item)
            item.isSent(at: link.record.id, over: connection, as: number)
            do throws(ControlClient.Failure) {
                try connection.client.send(.present(item.request(number, at: link.record.id)))
            } catch {
                lose(connection, of: link)
            }
        }
        if link.queue.isEmpty { link.connections.removeAll(where: \.items.isEmpty) }
        if link.isIdle { links[link.record.id] = nil }
    }

    /// Connects on a thread of its own, because a daemon may not answer.
    private func connect(_ link: PresenterLink) {
        if link.isConnecting { return }
        link.isConnecting = true
        let (record, directory) = (link.record, store.runDirectory)
        do throws(Errno) {
            try WorkerThread.start("presenter-link") { [self] in
                do throws(ControlClient.Failure) {
                    let client = try SessionClient(socket: record.socket, directory: directory, deadline: Clock.deadline(seconds: 1))
                    post(.connected(mount: record.id, .success(client)))
                } catch {
                    post(.connected(mount: record.id, .failure(error)))
                }
            }.detach()
        } catch {
            link.isConnecting = false
            fail(link, error.description)
        }
    }

    private func fail(_ link: PresenterLink, _ reason: String) {
        let waiting = link.queue
        link.queue = []
        for item in waiting { item.hasNoConnection(to: link.record, reason) }
        next = min(next, Clock.monotonic + Self.retryInterval)
    }

    private func takeNews(of link: PresenterLink) {
        for connection in link.connections {
            do throws(ControlClient.Failure) {
                while let news = try connection.client.next() {
                    guard let number = news.presenter else { continue }
                    if news.isAnswerToRegistration { connection.awaited.remove(number) }
                    guard let item = connection.items[number], !item.isEnded else { continue }
                    if item.take(news, link.record.id) == .over { connection.items[number] = nil }
                }
            } catch {
                lose(connection, of: link)
            }
        }
        proceed(link)
    }

    private func lose(_ connection: PresenterLink.Connection, of link: PresenterLink) {
        link.connections.removeAll { $0 === connection }
        for item in connection.items.values where !item.isEnded { item.isDisconnected(from: link.record.id) }
        next = min(next, Clock.monotonic + Self.retryInterval)
    }

    private func remove(_ item: PresentedItem) {
        guard items.removeValue(forKey: ObjectIdentifier(item)) != nil else { return }
        for registration in item.takeRegistrations() {
            registration.connection.items[registration.number] = nil
            try? registration.connection.client.send(.endPresenting(registration.number))
        }
        for link in Array(links.values) {
            link.queue.removeAll { $0 === item }
            proceed(link)
        }
    }
}

extension SessionNews {
    /// The number of the presenter that it is for.
    fileprivate var presenter: UInt64? {
        switch self {
        case .presenting(let number, _, _), .notPresenting(let number, _, _): number
        case .asks(let ask): ask.presenter
        case .tellsPresenter(let telling): telling.presenter
        case .granted, .waits, .refused, .progress, .tells, .listening, .preparing: nil
        }
    }

    fileprivate var isAnswerToRegistration: Bool {
        switch self {
        case .presenting, .notPresenting: true
        default: false
        }
    }
}
