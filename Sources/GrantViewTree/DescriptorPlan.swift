/// What the descriptors of a daemon are for. Parts that nobody can take from each other; the figures are for a limit of 1,024 and of 1,048,576.
public struct DescriptorPlan: Sendable {
    /// Workers at the most: each may have one descriptor more for a moment, or for as long as its call hangs. 128; 1,000.
    public let workers: Int
    /// For what programs hold and for nodes together. 768; 1,047,064. The rest, at least 48, is the daemon's own: the store, the control socket and who comes to
    /// it, looks at directories, watches.
    public let shared: Int
    /// Of these, what programs hold: open files and directories, and what carries their locks. 720; 981,623. The rest is left for nodes.
    public let held: Int
    /// Nodes that keep their descriptors without need, at the most; as many more as are held they lend. 384; 262,144.
    public let nodes: Int

    public init(limit: Int) {
        let own = min(512, max(48, limit / 8))
        workers = min(1_000, max(64, limit / 8))
        shared = max(64, limit - own - workers)
        held = shared - shared / 16
        nodes = min(shared / 2, 1 << 18)
    }
}
