import GrantModel

extension ControlReply: WireMessage {
    package func write(to writer: inout BinaryWriter) {
        switch self {
        case .applied(let outcomes):
            // Commands of before know no other kind, and nearly always need none.
            let isWhole = outcomes.allSatisfy(\.unforgotten.isEmpty)
            writer.write(isWhole ? UInt8(1) : UInt8(8))
            writer.write(list: outcomes) { writer, outcome in
                outcome.write(to: &writer)
                if !isWhole { writer.write(list: outcome.unforgotten) { $0.write($1) } }
            }
        case .status(let status):
            writer.write(UInt8(2))
            status.write(to: &writer)
        case .metrics(let metrics):
            writer.write(UInt8(16))
            metrics.write(to: &writer)
        case .failed(let text):
            writer.write(UInt8(3))
            writer.write(text)
        case .done:
            writer.write(UInt8(4))
        case .located(let places):
            writer.write(UInt8(5))
            writer.write(list: places) { writer, place in
                writer.write(place.grant)
                writer.write(place.path)
            }
        case .progress(let grants):
            writer.write(UInt8(6))
            writer.write(list: grants) { $1.write(to: &$0) }
        case .waits(let holds, let blocks):
            writer.write(UInt8(7))
            writer.write(holds)
            writer.write(list: blocks) { writer, block in
                writer.write(block.waiting)
                writer.write(block.blocker)
                writer.write(block.claimant)
            }
        }
    }

    package static func read(from reader: inout MessageReader) throws(CodingFlaw) -> ControlReply {
        switch try reader.number(UInt8.self) {
        case 1: return .applied(try reader.list { (reader) throws(CodingFlaw) in try GrantOutcome.read(from: &reader) })
        case 8:
            return .applied(
                try reader.list { (reader) throws(CodingFlaw) in
                    var outcome = try GrantOutcome.read(from: &reader)
                    outcome.unforgotten = try reader.list { (reader) throws(CodingFlaw) in try reader.bytes() }
                    return outcome
                })
        case 2: return .status(try MountStatus.read(from: &reader))
        case 16: return .metrics(try MountMetrics.read(from: &reader))
        case 3: return .failed(try reader.string())
        case 4: return .done
        case 5:
            return .located(
                try reader.list { (reader) throws(CodingFlaw) in GrantPlace(grant: try reader.id(), path: try reader.bytes()) })
        case 6: return .progress(try reader.list { (reader) throws(CodingFlaw) in try GrantProgress.read(from: &reader) })
        case 7:
            return .waits(
                holds: try reader.bool(),
                try reader.list { (reader) throws(CodingFlaw) in
                    ClaimBlock(waiting: try reader.id(), blocker: try reader.id(), claimant: try reader.id())
                })
        default: throw .unknownKind
        }
    }
}

extension GrantOutcome {
    fileprivate func write(to writer: inout BinaryWriter) {
        writer.write(grant)
        writer.write(confirmed)
        writer.write(milliseconds.bitPattern)
        writer.write(drained)
        writer.write(flushedBytes)
        writer.write(invalidatedInodes)
        writer.write(pending)
    }

    fileprivate static func read(from reader: inout MessageReader) throws(CodingFlaw) -> GrantOutcome {
        GrantOutcome(
            grant: try reader.id(), confirmed: try reader.bool(), milliseconds: Double(bitPattern: try reader.number(UInt64.self)),
            drained: try reader.number(UInt64.self), flushedBytes: try reader.number(UInt64.self),
            invalidatedInodes: try reader.number(UInt64.self), pending: try reader.number(UInt64.self))
    }
}

extension MountStatus {
    func write(to writer: inout BinaryWriter) {
        writer.write(view.description)
        writer.write(mountpoint)
        writer.write(pid)
        writer.write(since.nanoseconds)
        writer.write(list: grants) { $1.write(to: &$0) }
        writer.write(inodes)
        writer.write(descriptors)
        writer.write(list: requests) { $1.write(to: &$0) }
    }

    static func read(from reader: inout MessageReader) throws(CodingFlaw) -> MountStatus {
        guard let view = try? ViewName(try reader.string()) else { throw .badValue }
        return MountStatus(
            view: view, mountpoint: try reader.bytes(), pid: try reader.number(Int32.self),
            since: Instant(nanoseconds: try reader.number(Int64.self)),
            grants: try reader.list { (reader) throws(CodingFlaw) in try GrantStatus.read(from: &reader) },
            inodes: try reader.number(UInt64.self), descriptors: try reader.number(UInt64.self),
            requests: try reader.list { (reader) throws(CodingFlaw) in try RequestCount.read(from: &reader) })
    }
}

extension RequestCount {
    fileprivate func write(to writer: inout BinaryWriter) {
        writer.write(opcode)
        writer.write(count)
    }

    fileprivate static func read(from reader: inout MessageReader) throws(CodingFlaw) -> RequestCount {
        RequestCount(opcode: try reader.number(UInt32.self), count: try reader.number(UInt64.self))
    }
}

extension GrantStatus {
    fileprivate func write(to writer: inout BinaryWriter) {
        writer.write(id)
        writer.write(name.bytes)
        writer.write(state.rawValue)
        writer.write(path != nil)
        if let path { writer.write(path) }
        writer.write(inodes)
        writer.write(inFlight)
        writer.write(traffic.operations)
        writer.write(traffic.readBytes)
        writer.write(traffic.writtenBytes)
    }

    fileprivate static func read(from reader: inout MessageReader) throws(CodingFlaw) -> GrantStatus {
        let id = try reader.id()
        let bytes = try reader.bytes()
        guard let name = try? GrantName(entry: bytes), let state = GrantState(rawValue: try reader.string()) else { throw .badValue }
        let path = try reader.bool() ? try reader.bytes() : nil
        return GrantStatus(
            id: id, name: name, state: state, path: path, inodes: try reader.number(UInt64.self),
            inFlight: try reader.number(UInt64.self),
            traffic: GrantTraffic(
                operations: try reader.number(UInt64.self), readBytes: try reader.number(UInt64.self),
                writtenBytes: try reader.number(UInt64.self)))
    }
}
