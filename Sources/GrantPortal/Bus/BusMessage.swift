import CGrantPortal
import Glibc
import GrantSystem

/// What a message carries, or several do: what it costs to keep it.
struct BusLoad: Sendable {
    var calls = 0
    /// Values, those inside of others as well. Each takes more room than its bytes.
    var values = 0
    var bytes = 0
    var descriptors = 0

    static func + (one: BusLoad, other: BusLoad) -> BusLoad {
        BusLoad(
            calls: one.calls + other.calls, values: one.values + other.values, bytes: one.bytes + other.bytes,
            descriptors: one.descriptors + other.descriptors)
    }

    static func - (one: BusLoad, other: BusLoad) -> BusLoad {
        BusLoad(
            calls: one.calls - other.calls, values: one.values - other.values, bytes: one.bytes - other.bytes,
            descriptors: one.descriptors - other.descriptors)
    }

    func fits(in most: BusLoad) -> Bool {
        calls <= most.calls && values <= most.values && bytes <= most.bytes && descriptors <= most.descriptors
    }

    /// What one message may carry. The longest list that programs send is of files, 253 of which fit into a message of the kernel's.
    static let ofAMessage = BusLoad(calls: 1, values: 4096, bytes: 262_144, descriptors: 256)
}

/// A message while it is read or written, by the thread that has its bus.
struct BusMessage {
    let pointer: OpaquePointer

    /// Returns all values that it carries, from its beginning. Descriptors are copied. If it
    /// carries more than `most`, E2BIG is thrown and the rest is not read.
    func values(within most: BusLoad) throws(Errno) -> (values: [BusValue], load: BusLoad) {
        var load = BusLoad(calls: 1)
        return (try values(&load, most), load)
    }

    /// The values before the first that cannot be read.
    func readableValues(within most: BusLoad) -> [BusValue] {
        var load = BusLoad(calls: 1)
        var result: [BusValue] = []
        while let value = try? next(&load, most) { result.append(value) }
        return result
    }

    private func values(_ load: inout BusLoad, _ most: BusLoad) throws(Errno) -> [BusValue] {
        var result: [BusValue] = []
        while let value = try next(&load, most) { result.append(value) }
        return result
    }

    private func next(_ load: inout BusLoad, _ most: BusLoad) throws(Errno) -> BusValue? {
        var type: CChar = 0
        var contents: UnsafePointer<CChar>?
        guard try Errno.check(cportal_peek(pointer, &type, &contents)) > 0 else { return nil }
        load.values += 1
        guard load.fits(in: most) else { throw Errno(E2BIG) }
        let types = contents.map { String(cString: $0) } ?? ""
        switch UInt8(bitPattern: Int8(truncatingIfNeeded: type)) {
        case UInt8(ascii: "a") where types == "y": return .bytes(try bytes(&load, most))
        case UInt8(ascii: "a"), UInt8(ascii: "r"): return .list(try inside(type, types, &load, most))
        case UInt8(ascii: "e"):
            let parts = try inside(type, types, &load, most)
            guard parts.count == 2 else { throw Errno(EBADMSG) }
            return .pair(parts[0], parts[1])
        case UInt8(ascii: "v"):
            guard let value = try inside(type, types, &load, most).first else { throw Errno(EBADMSG) }
            return .variant(signature: types, value)
        default: return try basic(type, &load, most)
        }
    }

    private func inside(_ type: CChar, _ types: String, _ load: inout BusLoad, _ most: BusLoad) throws(Errno) -> [BusValue] {
        _ = try Errno.check(cportal_enter(pointer, type, types))
        let parts = try values(&load, most)
        _ = try Errno.check(cportal_leave(pointer))
        return parts
    }

    private func bytes(_ load: inout BusLoad, _ most: BusLoad) throws(Errno) -> [UInt8] {
        var (start, count): (UnsafeRawPointer?, Int) = (nil, 0)
        _ = try Errno.check(cportal_read_bytes(pointer, &start, &count))
        load.bytes += count
        guard load.fits(in: most) else { throw Errno(E2BIG) }
        return start.map { Array(UnsafeRawBufferPointer(start: $0, count: count)) } ?? []
    }

    private func basic(_ type: CChar, _ load: inout BusLoad, _ most: BusLoad) throws(Errno) -> BusValue {
        // Large enough for every basic type.
        var room: UInt64 = 0
        _ = try Errno.check(withUnsafeMutableBytes(of: &room) { cportal_read(pointer, type, $0.baseAddress) })
        func read<Value: BitwiseCopyable>(_ type: Value.Type) -> Value { withUnsafeBytes(of: &room) { $0.load(as: type) } }
        switch UInt8(bitPattern: Int8(truncatingIfNeeded: type)) {
        case UInt8(ascii: "y"): return .unsigned(UInt64(read(UInt8.self)))
        case UInt8(ascii: "q"): return .unsigned(UInt64(read(UInt16.self)))
        case UInt8(ascii: "u"): return .unsigned(UInt64(read(UInt32.self)))
        case UInt8(ascii: "t"): return .unsigned(room)
        case UInt8(ascii: "n"): return .signed(Int64(read(Int16.self)))
        case UInt8(ascii: "i"): return .signed(Int64(read(Int32.self)))
        case UInt8(ascii: "x"): return .signed(read(Int64.self))
        case UInt8(ascii: "d"): return .real(read(Double.self))
        // sd-bus gives an int for a boolean.
        case UInt8(ascii: "b"): return .bool(read(Int32.self) != 0)
        case UInt8(ascii: "h"):
            load.descriptors += 1
            guard load.fits(in: most) else { throw Errno(E2BIG) }
            let copy = fcntl(read(Int32.self), F_DUPFD_CLOEXEC, 3)
            guard copy >= 0 else { throw Errno(errno) }
            return .descriptor(GivenDescriptor(FileDescriptor(owning: copy)))
        case UInt8(ascii: "s"), UInt8(ascii: "o"), UInt8(ascii: "g"):
            guard let text = UnsafePointer<CChar>(bitPattern: UInt(truncatingIfNeeded: room)) else { throw Errno(EBADMSG) }
            load.bytes += strlen(text)
            guard load.fits(in: most) else { throw Errno(E2BIG) }
            return .text(String(cString: text))
        default: throw Errno(EBADMSG)
        }
    }

    /// Writes values of these types. Throws EINVAL if they do not fit.
    func append(_ values: [BusValue], _ types: String) throws(Errno) {
        let each = BusSignature.all(in: types)
        guard each.count == values.count else { throw Errno(EINVAL) }
        for (value, type) in zip(values, each) { try append(value, type) }
    }

    private func append(_ value: BusValue, _ type: String) throws(Errno) {
        switch value {
        case .text(let text): _ = try Errno.check(text.withCString { cportal_append(pointer, letter(type), $0) })
        case .bool(let bool):
            var number: Int32 = bool ? 1 : 0
            _ = try Errno.check(cportal_append(pointer, letter(type), &number))
        case .unsigned(let number): try append(number, type)
        case .signed(let number): try append(UInt64(bitPattern: number), type)
        case .real(var number): _ = try Errno.check(cportal_append(pointer, letter(type), &number))
        case .descriptor(let given):
            var number = given.descriptor.number
            _ = try Errno.check(cportal_append(pointer, letter(type), &number))
        case .bytes(let bytes):
            guard type == "ay" else { throw Errno(EINVAL) }
            _ = try Errno.check(bytes.withUnsafeBytes { cportal_append_bytes(pointer, $0.baseAddress, $0.count) })
        case .variant(let signature, let inner): try append([inner], signature, in: "v", signature)
        case .pair(let key, let inner):
            let inside = String(type.dropFirst().dropLast())
            try append([key, inner], inside, in: "e", inside)
        case .list(let list):
            if type.first == "a" {
                let element = String(type.dropFirst())
                try append(list, String(repeating: element, count: list.count), in: "a", element)
            } else {
                let inside = String(type.dropFirst().dropLast())
                try append(list, inside, in: "r", inside)
            }
        }
    }

    private func append(_ parts: [BusValue], _ types: String, in container: String, _ contents: String) throws(Errno) {
        _ = try Errno.check(cportal_begin(pointer, letter(container), contents))
        try append(parts, types)
        _ = try Errno.check(cportal_end(pointer))
    }

    /// A number, in the width of its type.
    private func append(_ number: UInt64, _ type: String) throws(Errno) {
        switch type {
        case "y": try append(raw: UInt8(truncatingIfNeeded: number), type)
        case "q", "n": try append(raw: UInt16(truncatingIfNeeded: number), type)
        case "u", "i": try append(raw: UInt32(truncatingIfNeeded: number), type)
        default: try append(raw: number, type)
        }
    }

    private func append(raw: some BitwiseCopyable, _ type: String) throws(Errno) {
        var number = raw
        _ = try Errno.check(cportal_append(pointer, letter(type), &number))
    }

    private func letter(_ type: String) -> CChar { CChar(truncatingIfNeeded: type.utf8.first ?? 0) }
}
