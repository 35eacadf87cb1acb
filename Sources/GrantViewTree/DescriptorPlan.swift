/// Divides a daemon's descriptors into fixed budgets.
///
/// The figures are for a limit of 1,024 and of 1,048,576.
public struct DescriptorPlan: Sendable {
    /// The maximum of workers: 128 and 1,000.
    ///
    /// Each may need one more descriptor for a moment, or while its call hangs.
    public let workers: Int
    /// The budget of programs and nodes together: 768 and 1,047,064.
    ///
    /// The rest, at least 48, is the daemon's own: the store, the control socket and its clients,
    /// checks of directories, watches.
    public let shared: Int
    /// The part of `shared` that programs may hold: 720 and 981,623.
    ///
    /// Programs hold descriptors by open files, open directories, and descriptions that carry
    /// locks. The rest is left for nodes.
    public let held: Int
    /// The most that nodes keep without need: 384 and 262,144.
    ///
    /// As programs hold more, nodes are evicted.
    public let nodes: Int

    public init(limit: Int) {
        let own = min(512, max(48, limit / 8))
        workers = min(1_000, max(64, limit / 8))
        shared = max(64, limit - own - workers)
        held = shared - shared / 16
        nodes = min(shared / 2, 1 << 18)
    }
}
