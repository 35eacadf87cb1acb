import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

// Requests that change more of a file than one WRITE can. They run in pieces and stop at a closed
// gate between two.
extension ViewFS {
    /// The first and the largest piece of a copy, in bytes.
    ///
    /// If the filesystem shares blocks, a piece takes no time.
    private static let (firstCopied, mostCopied) = (1 << 20, 32 << 20)
    /// Nanoseconds: a faster piece is followed by a larger one, a slower by a smaller.
    private static let (quickNanoseconds, slowNanoseconds): (Int64, Int64) = (1_000_000, 5_000_000)
    /// The largest piece of an allocation, in bytes. A filesystem in memory clears it in about 0.3
    /// s.
    private static let mostAllocated: off_t = 1 << 30

    static func fallocate(
        _ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ mode: Int32, _ offset: off_t, _ length: off_t, _ info: OpenFileInfo
    ) {
        view.onFile(request, info.fh, id, for: .write, writes: true) { request, file in
            view.settleSetID(of: file.pointee.descriptor, for: request.caller)
            view.captureShownTime(of: file.pointee.node, file.pointee.descriptor)
            let result = Identity.withReserve(of: request.caller) { view.allocate(file, mode, offset, length) }
            view.markTimeDirty(of: file.pointee.node)
            reply(request, result)
        }
    }

    /// Carries out fallocate(2), in pieces if possible.
    ///
    /// Moving the data behind the range (FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE) cannot
    /// be divided. An allocation that fails for space must not be done in part: a filesystem in
    /// memory undoes it.
    private func allocate(_ file: UnsafeMutablePointer<OpenFile>, _ mode: Int32, _ offset: off_t, _ length: off_t) -> Int32 {
        let (moving, punching): (Int32, Int32) = (0x08 | 0x20, 0x02)
        let descriptor = file.pointee.descriptor
        if mode & moving != 0 || length <= Self.mostAllocated || (mode & punching == 0 && !hasSpace(length, descriptor)) {
            return clinux_fallocate(descriptor, mode, offset, length)
        }
        var (done, piece): (off_t, off_t) = (0, Self.mostAllocated)
        while done < length {
            if done > 0, let refusal = refusal(ofChangeTo: file) { return refusal }
            let began = Clock.monotonic
            piece = min(piece, length - done)
            let result = clinux_fallocate(descriptor, mode, offset &+ done, piece)
            if result < 0 { return result }
            done += piece
            if mode & punching == 0 { continue }
            // Up to 2^63 bytes, nearly all of them behind the end of the file.
            let taken = Clock.monotonic - began
            if taken < Self.quickNanoseconds {
                piece = piece > length / 2 ? length : piece * 2
            } else if taken > Self.slowNanoseconds {
                piece = max(piece / 2, Self.mostAllocated)
            }
        }
        return 0
    }

    /// Whether `length` bytes are free on the file's filesystem.
    private func hasSpace(_ length: off_t, _ descriptor: Int32) -> Bool {
        var space = statvfs()
        guard clinux_fstatvfs(descriptor, &space) == 0, space.f_frsize > 0 else { return true }
        return UInt64(truncatingIfNeeded: space.f_bfree) >= UInt64(truncatingIfNeeded: length) / UInt64(truncatingIfNeeded: space.f_frsize)
    }

    /// COPY_FILE_RANGE: copies between files of one scope.
    ///
    /// Between two scopes it fails with EXDEV. The kernel then reads and writes by itself, each in
    /// its own scope.
    static func copyFileRange(
        _ view: ViewFS, _ request: consuming Request, from source: (node: NodeID, handle: UInt64), _ sourceOffset: off_t,
        to target: (node: NodeID, handle: UInt64), _ targetOffset: off_t, _ length: Int, _ flags: Int32
    ) {
        view.onFile(request, target.handle, target.node, for: .write, writes: true) { request, file in
            let caller = request.caller
            let result = view.withSource(source.node, source.handle, for: caller) { from -> Int in
                if view.refusal(by: from.pointee.containment, .read) != nil { return -Int(EACCES) }
                // If claims are held the kernel reads by itself, so that it waits for claims on the
                // source.
                let scope = ScopeID(rawValue: file.pointee.scope)
                guard from.pointee.scope == scope.rawValue, !view.coordinator.gate(scope).pointee.refused.contains(.claimed) else {
                    return -Int(EXDEV)
                }
                view.settleSetID(of: file.pointee.descriptor, for: caller)
                view.captureShownTime(of: file.pointee.node, file.pointee.descriptor)
                let result = view.copy(from, sourceOffset, to: file, targetOffset, length, flags, as: caller)
                view.markTimeDirty(of: file.pointee.node)
                return result
            }
            if result < 0 { request.reply(failure: result) } else { request.reply(written: result) }
        }
    }

    /// Runs copy_file_range(2) in pieces, and returns how many bytes were copied.
    ///
    /// At a closed gate and for a claim that is less than `length`, and the caller requests the
    /// rest. If no byte was copied, returns a negative error number.
    private func copy(
        _ source: UnsafeMutablePointer<OpenFile>, _ sourceOffset: off_t, to target: UnsafeMutablePointer<OpenFile>,
        _ targetOffset: off_t, _ length: Int, _ flags: Int32, as caller: Caller
    ) -> Int {
        var (copied, piece) = (0, Self.firstCopied)
        while true {
            let asked = min(piece, length - copied)
            let began = Clock.monotonic
            let result = Identity.withReserve(of: caller) {
                clinux_copy_file_range(
                    source.pointee.descriptor, sourceOffset &+ copied, target.pointee.descriptor, targetOffset &+ copied, asked,
                    UInt32(bitPattern: flags))
            }
            if result <= 0 { return copied > 0 ? copied : result }
            copied += min(result, asked)
            if result < asked || copied >= length || refusal(ofChangeTo: target) != nil || isClaimed(target)
                || refusal(by: source.pointee.containment, .read) != nil
            {
                return copied
            }
            let taken = Clock.monotonic - began
            if taken < Self.quickNanoseconds {
                piece = min(piece * 2, Self.mostCopied)
            } else if taken > Self.slowNanoseconds {
                piece = max(piece / 2, Self.firstCopied)
            }
        }
    }

    /// Why a change in pieces must stop, as a negative error number. nil while it may continue.
    ///
    /// The reason is that its grant is withdrawn or narrowed, or that its file leaves the grant.
    private func refusal(ofChangeTo file: UnsafeMutablePointer<OpenFile>) -> Int32? {
        let refused = coordinator.gate(ScopeID(rawValue: file.pointee.scope)).pointee.refused
        if refused.contains(.read) { return -EACCES }
        if let refusal = refusal(by: file.pointee.containment, .write) { return refusal == .readOnly ? -EROFS : -EACCES }
        return refused.contains(.write) ? -EROFS : nil
    }

    /// Whether a claim waits for operations in the file's scope.
    private func isClaimed(_ file: UnsafeMutablePointer<OpenFile>) -> Bool {
        coordinator.gate(ScopeID(rawValue: file.pointee.scope)).pointee.refused.contains(.claimed)
    }

    /// Runs `body` with the source file of a copy, which stays open meanwhile.
    ///
    /// Returns the result of `body`, or a negative error number.
    @inline(__always)
    private func withSource(
        _ id: NodeID, _ handle: UInt64, for caller: Caller, _ body: (UnsafeMutablePointer<OpenFile>) -> Int
    ) -> Int {
        if kernelOpens { return withCachedSource(id, for: caller, body) }
        guard let file = files.acquire(handle) else { return -Int(EBADF) }
        defer { files.drop(handle) }
        return body(file)
    }

    private func withCachedSource(_ id: NodeID, for caller: Caller, _ body: (UnsafeMutablePointer<OpenFile>) -> Int) -> Int {
        guard let node = tree.nodes.find(id.rawValue), node.pointee.type == S_IFREG else { return -Int(ESTALE) }
        if refusal(of: id, node, for: .read) != nil { return -Int(EACCES) }
        let descriptor = tree.pin(node)
        node.pointee.beginUse()
        defer {
            node.pointee.endUse()
            tree.unpin(id.rawValue, node)
        }
        let (file, error) = cachedFile(id.rawValue, node, descriptor, forWriting: false, as: caller)
        return file.map(body) ?? Int(truncatingIfNeeded: error)
    }
}
