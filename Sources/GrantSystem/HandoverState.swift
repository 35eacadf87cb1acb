import CGrantSystem
import Glibc

/// Serializes the state that one daemon hands over to the next.
///
/// It contains values in order as they lie in memory, since both daemons run on one machine, plus
/// descriptors. There may be millions of values, so writing one only copies a few bytes. The
/// daemons compare the layout of structures that are copied whole before anything is read
/// (`ViewFS.handoverLayout`).
public struct HandoverWriter: ~Copyable {
    private var memory: UnsafeMutableRawPointer
    private var capacity: Int
    public private(set) var count = 0
    /// In the order written. They stay open in this process, which keeps them.
    public private(set) var descriptors: [Int32] = []

    public init() {
        capacity = 1 << 20
        memory = .allocate(byteCount: capacity, alignment: 16)
    }

    deinit { memory.deallocate() }

    private mutating func makeRoom(_ bytes: Int) {
        if count + bytes <= capacity { return }
        while count + bytes > capacity { capacity *= 2 }
        let larger = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 16)
        larger.copyMemory(from: memory, byteCount: count)
        memory.deallocate()
        memory = larger
    }

    @inline(__always)
    public mutating func put<Value: BitwiseCopyable>(_ value: Value) {
        makeRoom(MemoryLayout<Value>.size)
        (memory + count).storeBytes(of: value, as: Value.self)
        count += MemoryLayout<Value>.size
    }

    public mutating func put(flag: Bool) { put(flag ? 1 as UInt8 : 0) }

    public mutating func put(bytes: UnsafeRawBufferPointer) {
        put(UInt64(truncatingIfNeeded: bytes.count))
        makeRoom(bytes.count)
        if let base = bytes.baseAddress { (memory + count).copyMemory(from: base, byteCount: bytes.count) }
        count += bytes.count
    }

    public mutating func put(bytes: [UInt8]) { bytes.withUnsafeBytes { put(bytes: $0) } }

    /// Adds a descriptor for the next daemon. A negative number stands for none.
    public mutating func put(descriptor: Int32) {
        put(descriptor < 0 ? UInt32.max : UInt32(truncatingIfNeeded: descriptors.count))
        if descriptor >= 0 { descriptors.append(descriptor) }
    }

    /// Everything written so far, without the descriptors.
    public var bytes: [UInt8] { Array(UnsafeRawBufferPointer(start: memory, count: count)) }

    /// Copies everything written so far to the start of a file.
    public borrowing func write(into file: borrowing FileDescriptor) throws(Errno) {
        var done = 0
        while done < count {
            let result = pwrite(file.number, memory + done, count - done, off_t(clamping: done))
            if result < 0, errno == EINTR { continue }
            if result <= 0 { throw Errno(result < 0 ? errno : EIO) }
            done += result
        }
    }
}

/// Reads the output of a `HandoverWriter`. Truncated input is an error, never a trap.
///
/// Owns the descriptors that came with it until they are taken.
public struct HandoverReader: ~Copyable {
    private let memory: UnsafeMutableRawPointer?
    private let count: Int
    private var position = 0
    private var descriptors: [Int32]
    /// The format version of the following data. 0 before it is known.
    public var version: UInt32 = 0

    /// Reads the bytes of a writer (`HandoverWriter.bytes`).
    ///
    /// `descriptors` are taken in that order.
    public init(_ bytes: [UInt8], descriptors: [Int32] = []) throws(Errno) {
        try self.init(file: try MemoryFile.of(bytes), count: bytes.count, descriptors: descriptors)
    }

    /// Maps `count` bytes of `file`. Takes ownership of `descriptors` even when this throws.
    public init(file: borrowing FileDescriptor, count: Int, descriptors: [Int32]) throws(Errno) {
        self.count = count
        self.descriptors = descriptors
        // Access to a mapping behind the end of a file is a SIGBUS.
        let isWhole = (try? file.status()).map { $0.st.st_size >= off_t(clamping: count) } ?? false
        let mapped = count > 0 && isWhole ? mmap(nil, count, PROT_READ, MAP_PRIVATE, file.number, 0) : nil
        memory = mapped == MAP_FAILED ? nil : mapped
        if mapped == MAP_FAILED || !isWhole {
            let error = Errno(isWhole ? errno : EBADMSG)
            for descriptor in descriptors { close(descriptor) }
            self.descriptors = []
            throw error
        }
    }

    deinit {
        if let memory { munmap(memory, count) }
        for descriptor in descriptors where descriptor >= 0 { close(descriptor) }
    }

    public var isAtEnd: Bool { position == count }

    @inline(__always)
    public mutating func take<Value: BitwiseCopyable>(_: Value.Type = Value.self) throws(Errno) -> Value {
        let size = MemoryLayout<Value>.size
        guard let memory, size <= count - position else { throw Errno(EBADMSG) }
        defer { position += size }
        return UnsafeRawPointer(memory + position).loadUnaligned(as: Value.self)
    }

    public mutating func takeFlag() throws(Errno) -> Bool { try take(UInt8.self) != 0 }

    /// Reads the number of elements that follow, each at least `bytes` long.
    public mutating func takeCount(ofAtLeast bytes: Int = 1) throws(Errno) -> Int {
        let number = try take(UInt64.self)
        guard number <= UInt64(truncatingIfNeeded: (count - position) / max(1, bytes)) else { throw Errno(EBADMSG) }
        return Int(truncatingIfNeeded: number)
    }

    public mutating func takeBytes() throws(Errno) -> [UInt8] {
        try takeBytes(try take(UInt64.self))
    }

    /// Reads `size` bytes.
    public mutating func takeBytes(_ size: UInt64) throws(Errno) -> [UInt8] {
        guard size <= UInt64(truncatingIfNeeded: count - position) else { throw Errno(EBADMSG) }
        let size = Int(truncatingIfNeeded: size)
        guard size > 0, let memory else { return [] }
        defer { position += size }
        return Array(UnsafeRawBufferPointer(start: memory + position, count: size))
    }

    /// Takes a descriptor, which the caller then owns. -1 for none.
    ///
    /// Each can be taken once.
    public mutating func takeDescriptor() throws(Errno) -> Int32 {
        let place = try take(UInt32.self)
        if place == .max { return -1 }
        guard Int(truncatingIfNeeded: place) < descriptors.count, descriptors[Int(truncatingIfNeeded: place)] >= 0 else {
            throw Errno(EBADMSG)
        }
        defer { descriptors[Int(truncatingIfNeeded: place)] = -1 }
        return descriptors[Int(truncatingIfNeeded: place)]
    }
}
