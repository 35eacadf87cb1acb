import GrantControl
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// The grants on record, and each mount's report, at one moment.
public struct TopSnapshot: Sendable {
    /// A mount of a view, or a view that is not mounted.
    public struct Section: Sendable {
        public var view: ViewName
        /// The id of the mount's record, or nil for a view that is not mounted.
        public var mount: GrantID?
        public var mountpoint: [UInt8] = []
        public var pid: Int32 = 0
        /// Why it does not answer, or nil if it does, or is not mounted.
        public var unresponsiveReason: String?
        /// Whether its daemon has ended.
        public var isDead = false
        public var inodes: UInt64 = 0
        /// Since the mount was made.
        public var requests: UInt64 = 0
        public var readBytes: UInt64?
        public var writtenBytes: UInt64?
        public var grants: [Row] = []
        public var holders: [Holder] = []

        public init(view: ViewName, mount: GrantID? = nil) { (self.view, self.mount) = (view, mount) }
    }

    /// One grant in a section.
    public struct Row: Sendable {
        public var id: GrantID
        public var name: GrantName
        public var access: Access
        public var state: GrantState
        /// Whether a mount has reported it. Otherwise it is only recorded.
        public var isLive = false
        public var inodes: UInt64 = 0
        public var inFlight: UInt64 = 0
        /// Since the grant was last made active.
        public var operations: UInt64 = 0
        public var bytes: UInt64 = 0
        public var denials: UInt64?
        public var path: [UInt8]
        /// Seconds until it expires, or nil when it does not.
        public var secondsLeft: Double?

        public init(id: GrantID, name: GrantName, access: Access, state: GrantState, path: [UInt8]) {
            (self.id, self.name, self.access, self.state, self.path) = (id, name, access, state, path)
        }
    }

    /// Nanoseconds of `Clock.monotonic`.
    public var time: Int64
    public var sections: [Section]

    public init(time: Int64, sections: [Section]) { (self.time, self.sections) = (time, sections) }

    /// Combines the store's records and the mounts' reports, sorted by view. Within a view the
    /// oldest mount comes first.
    public init(time: Int64, now: Instant, grants: [Grant], mounts: [MountReport]) {
        let views = Set(grants.map(\.view)).union(mounts.compactMap(\.record.shown.onlyView)).sorted { $0.description < $1.description }
        sections = views.flatMap { view -> [Section] in
            let rows = grants.filter { $0.view == view }.map { grant in
                let state = GrantState(rawValue: grant.state(at: now).rawValue) ?? .unavailable
                var row = Row(id: grant.id, name: grant.name, access: grant.access, state: state, path: grant.bookmark.path)
                row.secondsLeft = state == .active ? grant.expires.map { $0.seconds(since: now) } : nil
                return row
            }
            let reports = mounts.filter { $0.record.shows(view) }.sorted { $0.record.since < $1.record.since }
            if reports.isEmpty {
                var section = Section(view: view)
                section.grants = rows
                return [section]
            }
            return reports.map { TopSnapshot.section(of: view, $0, rows) }
        }
        self.time = time
    }

    private static func section(of view: ViewName, _ report: MountReport, _ recorded: [Row]) -> Section {
        var section = Section(view: view, mount: report.record.id)
        (section.mountpoint, section.pid) = (report.record.mountpoint, report.record.pid)
        (section.unresponsiveReason, section.holders, section.grants) = (report.unresponsiveReason, report.holders, recorded)
        section.isDead = report.isDead
        guard let status = report.status else { return section }
        (section.inodes, section.requests) = (status.inodes, status.requests.reduce(0) { $0 &+ $1.count })
        (section.readBytes, section.writtenBytes) = (report.counts?.readBytes, report.counts?.writtenBytes)
        for index in recorded.indices {
            guard let live = status.grants.first(where: { $0.id == recorded[index].id }) else { continue }
            section.grants[index].isLive = true
            (section.grants[index].state, section.grants[index].inodes) = (live.state, live.inodes)
            section.grants[index].inFlight = live.inFlight
            section.grants[index].operations = live.traffic.operations
            section.grants[index].bytes = live.traffic.readBytes &+ live.traffic.writtenBytes
            // Grants without a refusal are missing in the counters.
            section.grants[index].denials = report.counts.map { counts in
                counts.denials.first { $0.grant == live.id }?.count ?? 0
            }
            if let path = live.path { section.grants[index].path = path }
        }
        return section
    }
}
