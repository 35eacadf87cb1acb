import Glibc
import GrantSystem

// Requests that a daemon may have executed before it crashed, refused with EIO. The kernel then
// trusts its earlier caches, which may be stale.
extension Session {
    /// Adopts another daemon's requests that must fail with EIO. Call it before `start`.
    ///
    /// They are as the kernel wrote them, possibly truncated. They stay journaled until
    /// `answerRefused`.
    public func takeOver(refused messages: [[UInt8]]) {
        let kept = messages.map { $0.withUnsafeBytes { ParkedMessage($0, journal: context.pointee.journal) } }
        refused.withLock { $0 += kept }
    }

    /// Answers them with EIO.
    ///
    /// Call it after serving has begun, by a thread that serves no requests.
    public func answerRefused() {
        let taken = refused.withLock { refused in
            defer { refused = [] }
            return refused
        }
        for message in taken {
            // struct fuse_out_header
            var header: (UInt32, Int32, UInt64) = (
                16, -EIO, Message(UnsafeRawBufferPointer(start: message.memory, count: message.size)).unique
            )
            _ = write(device, &header, 16)
        }
        // Invalidates immediately, because a program that gets the error may read the result.
        invalidateSubjects(of: taken.map { Array(UnsafeRawBufferPointer(start: $0.memory, count: $0.size)) })
        for message in taken { message.end() }
    }

    /// Invalidates the names and attributes that these requests affect.
    ///
    /// Uses a thread of its own, because a program may hold the lock of a name's directory.
    ///
    /// `messages`: as the kernel wrote them, possibly truncated. Only while requests are served.
    func invalidateSubjects(of messages: [[UInt8]]) {
        if messages.isEmpty { return }
        let notifier = notifier
        _ = try? WorkerThread.start("grantfs-task") {
            for bytes in messages {
                let (nodes, names) = bytes.withUnsafeBytes { Message($0).subjects }
                for node in nodes where node > 1 { _ = notifier.invalidateAttributes(NodeID(node)) }
                for (parent, name) in names where parent > 1 { _ = notifier.expireEntry(name, in: NodeID(parent)) }
            }
        }.detach()
    }
}

extension Message {
    /// The nodes of a request, and the names that it changes (linux/fuse.h).
    var subjects: (nodes: [UInt64], names: [(parent: UInt64, name: [UInt8])]) {
        let node = wide(at: 16)
        switch opcode {
        // SYMLINK, UNLINK, RMDIR
        case 6, 10, 11: return ([node], strings(at: 40, 1).map { (node, $0) })
        // MKNOD, CREATE, TMPFILE
        case 8, 35, 51: return ([node], strings(at: 56, 1).map { (node, $0) })
        // MKDIR
        case 9: return ([node], strings(at: 48, 1).map { (node, $0) })
        // LINK
        case 13: return ([node, wide(at: 40)], strings(at: 48, 1).map { (node, $0) })
        // RENAME, RENAME2
        case 12, 45:
            let target = wide(at: 40)
            let names = strings(at: opcode == 12 ? 48 : 56, 2)
            return ([node, target], zip([node, target], names).map { ($0, $1) })
        default: return ([node], [])
        }
    }

    /// That many consecutive NUL-terminated strings, or fewer if the message is truncated.
    private func strings(at place: Int, _ count: Int) -> [[UInt8]] {
        var (found, start): ([[UInt8]], Int) = ([], place)
        while found.count < count, start < size, let end = copy[start...].firstIndex(of: 0) {
            found.append(Array(copy[start..<end]))
            start = end + 1
        }
        return found
    }
}
