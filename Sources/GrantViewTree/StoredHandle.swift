import CGrantSystem
import Glibc
import Synchronization

/// A node's file handle, written once.
///
/// Handles of most filesystems (ext4 and xfs 8 or 12 bytes, tmpfs 12, btrfs 20) lie in the node
/// itself. A million small blocks would fragment the C library's heap permanently. Longer handles
/// get a block of their own.
struct StoredHandle: ~Copyable {
    private static let inlineBytes: UInt32 = 24
    /// `type << 32 | length`. It is 0 while there is none.
    private let head = Atomic<UInt64>(0)
    /// The handle's bytes. For a longer handle, the address of its block comes first.
    private let first = Atomic<UInt64>(0)
    private let second = Atomic<UInt64>(0)
    private let third = Atomic<UInt64>(0)

    deinit {
        if length > Self.inlineBytes { free(UnsafeMutableRawPointer(bitPattern: UInt(truncatingIfNeeded: first.load(ordering: .relaxed)))) }
    }

    private var length: UInt32 { UInt32(truncatingIfNeeded: head.load(ordering: .relaxed)) }

    var isStored: Bool { head.load(ordering: .acquiring) != 0 }

    /// A copy. Returns nil if there is none, or if it is in a block and `withBlock` is false.
    func copy(withBlock: Bool = true) -> clinux_handle? {
        let head = head.load(ordering: .acquiring)
        if head == 0 || (!withBlock && UInt32(truncatingIfNeeded: head) > Self.inlineBytes) { return nil }
        var result = clinux_handle()
        result.type = Int32(truncatingIfNeeded: head >> 32)
        result.length = UInt32(truncatingIfNeeded: head)
        let words = (first.load(ordering: .relaxed), second.load(ordering: .relaxed), third.load(ordering: .relaxed))
        withUnsafeMutableBytes(of: &result.bytes) { bytes in
            if result.length > Self.inlineBytes {
                guard let block = UnsafeRawPointer(bitPattern: UInt(truncatingIfNeeded: words.0)) else { return }
                bytes.baseAddress!.copyMemory(from: block, byteCount: min(Int(truncatingIfNeeded: result.length), bytes.count))
            } else {
                withUnsafeBytes(of: words) {
                    bytes.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[..<Int(truncatingIfNeeded: result.length)]))
                }
            }
        }
        return result
    }

    /// Stores a handle, unless there is one.
    ///
    /// Called only by the thread that evicts descriptors, so by one at a time.
    func store(_ handle: clinux_handle) {
        let length = Int(truncatingIfNeeded: handle.length)
        if isStored || length == 0 || length > MemoryLayout.size(ofValue: handle.bytes) { return }
        var words: (UInt64, UInt64, UInt64) = (0, 0, 0)
        withUnsafeBytes(of: handle.bytes) { bytes in
            if handle.length > Self.inlineBytes {
                guard let block = malloc(length) else { return }
                block.copyMemory(from: bytes.baseAddress!, byteCount: length)
                words.0 = UInt64(truncatingIfNeeded: UInt(bitPattern: block))
            } else {
                withUnsafeMutableBytes(of: &words) { $0.copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[..<length])) }
            }
        }
        // Out of memory: nothing is stored.
        if handle.length > Self.inlineBytes, words.0 == 0 { return }
        first.store(words.0, ordering: .relaxed)
        second.store(words.1, ordering: .relaxed)
        third.store(words.2, ordering: .relaxed)
        head.store(
            UInt64(truncatingIfNeeded: UInt32(bitPattern: handle.type)) << 32 | UInt64(truncatingIfNeeded: handle.length),
            ordering: .releasing)
    }
}
