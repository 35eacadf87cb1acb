import CGrantSystem
import Glibc
import GrantSystem
import Synchronization

// Hands open files and directories over to the next daemon. Their open file descriptions stay the
// same, with their locks.
extension OpenFiles {
    public func handOver(to state: inout HandoverWriter) {
        table.handOverIDs(to: &state)
        state.put(UInt64(truncatingIfNeeded: count))
        for index in 0..<table.indexLimit {
            if let (id, file) = table.element(at: index) { file.pointee.handOver(id, to: &state) }
        }
    }

    public func takeOver(from state: inout HandoverReader) throws(Errno) {
        try table.takeOverIDs(from: &state)
        for _ in 0..<(try state.takeCount(ofAtLeast: 32)) {
            let id: UInt64 = try state.take()
            let descriptor = try state.takeDescriptor()
            guard descriptor >= 0 else { throw Errno(EBADMSG) }
            let (node, scope): (UInt64, UInt32) = (try state.take(), try state.take())
            let opener: (uid: uid_t, gid: gid_t, pid: pid_t) = (try state.take(), try state.take(), try state.take())
            let flags: Int32 = try state.take()
            let file = OpenFile(
                descriptor: FileDescriptor(owning: descriptor), node: node, scope: scope, opener: opener, flags: flags,
                appendsOnly: try state.takeFlag())
            file.containment.store(try state.take(), ordering: .relaxed)
            file.reportedLosses.store(try state.take(), ordering: .relaxed)
            try table.takeOver(id, file)
            shares.takeOver(scope: scope, user: opener.uid)
        }
    }
}

extension OpenDirectories {
    public func handOver(to state: inout HandoverWriter) {
        table.handOverIDs(to: &state)
        state.put(UInt64(truncatingIfNeeded: count))
        for index in 0..<table.indexLimit {
            guard let (id, directory) = table.element(at: index) else { continue }
            directory.pointee.handOver(id, to: &state)
            directory.pointee.stream.withLock { $0.handOver(to: &state) }
        }
    }

    public func takeOver(from state: inout HandoverReader) throws(Errno) {
        try table.takeOverIDs(from: &state)
        for _ in 0..<(try state.takeCount(ofAtLeast: 32)) {
            let id: UInt64 = try state.take()
            let descriptor = try state.takeDescriptor()
            guard descriptor >= 0 else { throw Errno(EBADMSG) }
            let (node, scope, user): (UInt64, UInt32, UInt32) = (try state.take(), try state.take(), try state.take())
            let directory = OpenDirectory(descriptor: FileDescriptor(owning: descriptor), node: node, scope: scope, user: user)
            directory.containment.store(try state.take(), ordering: .relaxed)
            let stream = try DirectoryStream(from: &state)
            directory.stream.withLock { $0 = stream }
            try table.takeOver(id, directory)
            shares.takeOver(scope: scope, user: user)
        }
    }
}

extension OpenFile {
    func handOver(_ id: UInt64, to state: inout HandoverWriter) {
        state.put(id)
        state.put(descriptor: descriptor)
        state.put(node)
        state.put(scope)
        state.put(uid)
        state.put(gid)
        state.put(pid)
        state.put(flags)
        state.put(flag: appendsOnly)
        state.put(containment.load(ordering: .relaxed))
        state.put(reportedLosses.load(ordering: .relaxed))
    }
}

extension OpenDirectory {
    /// Writes everything but the position.
    func handOver(_ id: UInt64, to state: inout HandoverWriter) {
        state.put(id)
        state.put(descriptor: descriptor)
        state.put(node)
        state.put(scope)
        state.put(user)
        state.put(containment.load(ordering: .relaxed))
    }
}
