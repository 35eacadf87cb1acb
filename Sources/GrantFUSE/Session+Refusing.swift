import Glibc
import GrantSystem

// Requests that a daemon may have done before it died, and that are EIO: the kernel goes by what it knew before, which may not be so any more.
extension Session {
    /// Takes over requests of another daemon that are EIO, as the kernel wrote them, perhaps without their ends. They stay noted until `answerRefused`. Before `start`.
    public func takeOver(refused messages: [[UInt8]]) {
        let kept = messages.map { $0.withUnsafeBytes { ParkedMessage($0, journal: context.pointee.journal) } }
        refused.withLock { $0 += kept }
    }

    /// Answers them. Once requests are served, by a thread that serves none.
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
        // At once: whoever hears of the error may look.
        invalidateSubjects(of: taken.map { Array(UnsafeRawBufferPointer(start: $0.memory, count: $0.size)) })
        for message in taken { message.end() }
    }

    /// Makes the kernel ask again for the names and attributes that these requests were about. On a thread of its own: a name's directory may be locked by a program.
    ///
    /// `messages`: as the kernel wrote them, perhaps without their ends. Only once requests are served.
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
    /// The nodes that a request is about, and the names that it makes, removes or changes (linux/fuse.h).
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

    /// So many strings that end with a NUL, one behind the other; fewer where they are not whole.
    private func strings(at place: Int, _ count: Int) -> [[UInt8]] {
        var (found, start): ([[UInt8]], Int) = ([], place)
        while found.count < count, start < size, let end = copy[start...].firstIndex(of: 0) {
            found.append(Array(copy[start..<end]))
            start = end + 1
        }
        return found
    }
}
