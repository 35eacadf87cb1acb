/// Divides a daemon's descriptors into budgets that cannot be taken from each other. The figures are for a limit of 1,024 and of
/// 1,048,576.
public struct DescriptorPlan: Sendable {
    /// The maximum of workers: each may need one more descriptor for a moment, or while its call hangs. 128; 1,000.
    public let workers: Int
    /// For programs and nodes together. 768; 1,047,064. The rest, at least 48, is the daemon's own: the store, the control socket
    /// and its clients, checks of directories, watches.
    public let shared: Int
    /// Of these, at most what programs hold: open files and directories, and descriptions that carry locks. 720; 981,623. The rest
    /// is left for nodes.
    public let held: Int
    /// At most what nodes keep without need; as programs hold more, nodes are evicted. 384; 262,144.
    public let nodes: Int

    public init(limit: Int) {
        let own = min(512, max(48, limit / 8))
        workers = min(1_000, max(64, limit / 8))
        shared = max(64, limit - own - workers)
        held = shared - shared / 16
        nodes = min(shared / 2, 1 << 18)
    }
}
