import GrantModel

/// How far the withdrawal of a grant has come in one mount.
public struct GrantProgress: Sendable, Equatable {
    /// In the order in which they come.
    public enum Stage: String, Sendable, CaseIterable {
        /// Operations that were under way end.
        case draining
        /// What was written before is written back; counted in bytes.
        case flushing
        /// The kernel forgets; counted in inodes.
        case forgetting
    }

    public var grant: GrantID
    public var stage: Stage
    public var done: UInt64
    /// nil where it is not known.
    public var total: UInt64?

    public init(grant: GrantID, stage: Stage, done: UInt64, total: UInt64?) {
        (self.grant, self.stage, self.done, self.total) = (grant, stage, done, total)
    }

    func write(to writer: inout BinaryWriter) {
        writer.write(grant)
        writer.write(stage.rawValue)
        writer.write(done)
        writer.write(total != nil)
        if let total { writer.write(total) }
    }

    static func read(from reader: inout MessageReader) throws(CodingFlaw) -> GrantProgress {
        let grant = try reader.id()
        guard let stage = Stage(rawValue: try reader.string()) else { throw .badValue }
        let done = try reader.number(UInt64.self)
        return GrantProgress(grant: grant, stage: stage, done: done, total: try reader.bool() ? try reader.number(UInt64.self) : nil)
    }
}
