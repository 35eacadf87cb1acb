import GrantModel

extension SessionRequest: WireMessage {
    package func write(to writer: inout BinaryWriter) {
        switch self {
        case .claim(let claim):
            writer.write(UInt8(1))
            claim.write(to: &writer)
        case .endClaim(let number):
            writer.write(UInt8(2))
            writer.write(number)
        case .moved(let claim, let from, let to):
            writer.write(UInt8(3))
            writer.write(claim)
            writer.write(from)
            writer.write(to)
        case .watch(let since):
            writer.write(UInt8(4))
            writer.write(optional: since) { $1.write(to: &$0) }
        case .present(let presenter):
            writer.write(UInt8(5))
            presenter.write(to: &writer)
        case .endPresenting(let number):
            writer.write(UInt8(6))
            writer.write(number)
        case .answer(let question, let isDone):
            writer.write(UInt8(7))
            writer.write(question)
            writer.write(isDone)
        case .prepareRevocation(let number, let id, let grant, let milliseconds):
            writer.write(UInt8(8))
            writer.write(number)
            writer.write(id)
            writer.write(grant)
            writer.write(milliseconds)
        }
    }

    package static func read(from reader: inout MessageReader) throws(CodingFlaw) -> SessionRequest {
        switch try reader.number(UInt8.self) {
        case 1: return .claim(try ClaimRequest.read(from: &reader))
        case 2: return .endClaim(try reader.number(UInt64.self))
        case 3: return .moved(claim: try reader.number(UInt64.self), from: try reader.bytes(), to: try reader.bytes())
        case 4: return .watch(since: try reader.optionalMark())
        case 5: return .present(try PresentRequest.read(from: &reader))
        case 6: return .endPresenting(try reader.number(UInt64.self))
        case 7: return .answer(question: try reader.number(UInt64.self), isDone: try reader.bool())
        case 8:
            return .prepareRevocation(
                number: try reader.number(UInt64.self), id: try reader.id(), grant: try reader.id(),
                milliseconds: try reader.number(UInt32.self))
        default: throw .unknownKind
        }
    }
}

extension ClaimRequest {
    fileprivate func write(to writer: inout BinaryWriter) {
        writer.write(number)
        writer.write(id)
        writer.write(claimant)
        writer.write(optional: purpose) { $0.write($1) }
        writer.write(list: items) { writer, item in
            writer.write(item.path)
            writer.write(item.isWriting)
            writer.write(item.intent.rawValue)
            writer.write(item.savesFirst)
            writer.write(optional: item.newPath) { $0.write($1) }
        }
        writer.write(holdMilliseconds)
    }

    fileprivate static func read(from reader: inout MessageReader) throws(CodingFlaw) -> ClaimRequest {
        ClaimRequest(
            number: try reader.number(UInt64.self), id: try reader.id(), claimant: try reader.id(), purpose: try reader.optionalBytes(),
            items: try reader.list { (reader) throws(CodingFlaw) in
                ItemRequest(
                    path: try reader.bytes(), isWriting: try reader.bool(), intent: try reader.value(ItemRequest.Intent.self),
                    savesFirst: try reader.bool(), newPath: try reader.optionalBytes())
            }, holdMilliseconds: try reader.number(UInt32.self))
    }
}

extension EventMark {
    func write(to writer: inout BinaryWriter) {
        writer.write(epoch)
        writer.write(number)
    }
}

extension MessageReader {
    mutating func optionalBytes() throws(CodingFlaw) -> [UInt8]? { try bool() ? try bytes() : nil }

    mutating func mark() throws(CodingFlaw) -> EventMark { EventMark(epoch: try id(), number: try number(UInt64.self)) }

    mutating func optionalMark() throws(CodingFlaw) -> EventMark? { try bool() ? try mark() : nil }

    /// One of a kind's values.
    mutating func value<Value: RawRepresentable>(_: Value.Type) throws(CodingFlaw) -> Value where Value.RawValue == UInt8 {
        guard let value = Value(rawValue: try number(UInt8.self)) else { throw .badValue }
        return value
    }
}

extension SessionNews: WireMessage {
    package func write(to writer: inout BinaryWriter) {
        switch self {
        case .granted(let claim, let reach):
            writer.write(UInt8(1))
            writer.write(claim)
            writer.write(list: reach) { $0.write($1.rawValue) }
        case .waits(let claim, let pids):
            writer.write(UInt8(2))
            writer.write(claim)
            writer.write(list: pids) { $0.write($1) }
        case .refused(let claim, let refusal, let text):
            writer.write(UInt8(3))
            writer.write(claim)
            writer.write(refusal.rawValue)
            writer.write(text)
        case .progress(let claim, let stage, let done, let total):
            writer.write(UInt8(4))
            writer.write(claim)
            writer.write(stage)
            writer.write(done)
            writer.write(total)
        case .tells(let event):
            writer.write(UInt8(5))
            event.write(to: &writer)
        case .listening(let mark, let hasMissed):
            writer.write(UInt8(6))
            mark.write(to: &writer)
            writer.write(hasMissed)
        case .presenting(let number, let mark, let hasMissed):
            writer.write(UInt8(7))
            writer.write(number)
            mark.write(to: &writer)
            writer.write(hasMissed)
        case .notPresenting(let number, let refusal, let text):
            writer.write(UInt8(8))
            writer.write(number)
            writer.write(refusal.rawValue)
            writer.write(text)
        case .asks(let question):
            writer.write(UInt8(9))
            question.write(to: &writer)
        case .tellsPresenter(let telling):
            writer.write(UInt8(10))
            telling.write(to: &writer)
        case .preparing(let number, let asked, let answered, let isOver):
            writer.write(UInt8(11))
            writer.write(number)
            writer.write(asked)
            writer.write(answered)
            writer.write(isOver)
        }
    }

    package static func read(from reader: inout MessageReader) throws(CodingFlaw) -> SessionNews {
        switch try reader.number(UInt8.self) {
        case 1:
            return .granted(
                claim: try reader.number(UInt64.self),
                reach: try reader.list { (reader) throws(CodingFlaw) in try reader.value(ItemReach.self) })
        case 2:
            return .waits(
                claim: try reader.number(UInt64.self),
                pids: try reader.list { (reader) throws(CodingFlaw) in try reader.number(Int32.self) })
        case 3:
            return .refused(
                claim: try reader.number(UInt64.self), try reader.value(ClaimRefusal.self), text: try reader.string())
        case 4:
            return .progress(
                claim: try reader.number(UInt64.self), stage: try reader.string(), done: try reader.number(UInt64.self),
                total: try reader.number(UInt64.self))
        case 5: return .tells(try SessionEvent.read(from: &reader))
        case 6: return .listening(mark: try reader.mark(), hasMissed: try reader.bool())
        case 7: return .presenting(try reader.number(UInt64.self), mark: try reader.mark(), hasMissed: try reader.bool())
        case 8:
            return .notPresenting(try reader.number(UInt64.self), try reader.value(ClaimRefusal.self), text: try reader.string())
        case 9: return .asks(try PresenterAsk.read(from: &reader))
        case 10: return .tellsPresenter(try PresenterTelling.read(from: &reader))
        case 11:
            return .preparing(
                try reader.number(UInt64.self), asked: try reader.number(UInt32.self), answered: try reader.number(UInt32.self),
                isOver: try reader.bool())
        default: throw .unknownKind
        }
    }
}

extension SessionEvent {
    fileprivate func write(to writer: inout BinaryWriter) {
        writer.write(number)
        writer.write(time.nanoseconds)
        writer.write(kind.rawValue)
        writer.write(path)
        writer.write(optional: newPath) { $0.write($1) }
        writer.write(pid)
        writer.write(text)
    }

    fileprivate static func read(from reader: inout MessageReader) throws(CodingFlaw) -> SessionEvent {
        SessionEvent(
            number: try reader.number(UInt64.self), time: Instant(nanoseconds: try reader.number(Int64.self)),
            kind: try reader.value(Kind.self), path: try reader.bytes(), newPath: try reader.optionalBytes(),
            pid: try reader.number(Int32.self), text: try reader.string())
    }
}
