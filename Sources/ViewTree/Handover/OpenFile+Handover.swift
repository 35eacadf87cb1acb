import CLinux
import Glibc
import LinuxFS
import Synchronization

// Open files and directories on their way from one daemon to the next. The descriptions behind their descriptors stay the same, with the locks on them.
extension OpenFiles {
    public func handOver(to state: inout HandoverWriter) {
        table.handOverIDs(to: &state)
        state.put(UInt64(truncatingIfNeeded: count))
        for index in 0..<table.indexLimit {
            guard let (id, file) = table.element(at: index) else { continue }
            state.put(id)
            state.put(descriptor: file.pointee.descriptor)
            state.put(file.pointee.node)
            state.put(file.pointee.scope)
            state.put(file.pointee.uid)
            state.put(file.pointee.gid)
            state.put(file.pointee.pid)
            state.put(file.pointee.flags)
            state.put(flag: file.pointee.appendsOnly)
            state.put(file.pointee.standing.load(ordering: .relaxed))
            state.put(file.pointee.lossesTold.load(ordering: .relaxed))
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
            file.standing.store(try state.take(), ordering: .relaxed)
            file.lossesTold.store(try state.take(), ordering: .relaxed)
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
            state.put(id)
            state.put(descriptor: directory.pointee.descriptor)
            state.put(directory.pointee.node)
            state.put(directory.pointee.scope)
            state.put(directory.pointee.user)
            state.put(directory.pointee.standing.load(ordering: .relaxed))
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
            directory.standing.store(try state.take(), ordering: .relaxed)
            let stream = try DirectoryStream(from: &state)
            directory.stream.withLock { $0 = stream }
            try table.takeOver(id, directory)
            shares.takeOver(scope: scope, user: user)
        }
    }
}
