import CGrantSystem
import GrantCoordinator
import GrantFUSE
import Glibc
import GrantSystem
import GrantViewTree

extension ViewFS {
    /// OPEN: opens the file behind a node as the caller, and replies with its handle.
    ///
    /// Replies ENOSYS if the kernel should open files by itself.
    static func open(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ info: UnsafeMutablePointer<OpenFileInfo>) {
        if view.kernelOpens {
            request.reply(error: ENOSYS)
            return
        }
        let flags = info.pointee.flags
        view.onNode(request, id, for: entry(for: flags)) { request, node, descriptor in
            // An inode never changes its type, so this cannot be a device or a FIFO by the time it
            // is opened.
            guard node.pointee.type == S_IFREG else {
                _ = view.audit(request, node, descriptor, error: ENXIO)
                request.reply(error: ENXIO)
                return
            }
            guard view.tree.hasRoom(scope: node.pointee.scope, user: request.caller.uid) else {
                _ = view.audit(request, node, descriptor, error: ENFILE)
                request.reply(error: ENFILE)
                return
            }
            let (opened, appendsOnly) = view.reopen(descriptor, flags, as: request.caller)
            if flags & O_NONBLOCK == 0, view.isLease(opened, node) {
                view.awaitLease(request, node, descriptor)
                return
            }
            if opened < 0 {
                _ = view.audit(request, node, descriptor, error: Errno.number(of: opened))
                request.reply(error: Errno.number(of: opened))
                return
            }
            var status = FileStatus()
            let result = clinux_statx(opened, nil, &status)
            if result < 0 || (status.st.st_nlink == 0 && view.wasOpenedByStaleName(node)) {
                _ = clinux_close(opened)
                request.reply(error: result < 0 ? Errno.number(of: result) : ESTALE)
                return
            }
            view.recordMode(status.st.st_mode)
            let unwritten = view.audit(request, node, opened, error: 0)
            if unwritten != 0 {
                _ = clinux_close(opened)
                request.reply(error: unwritten)
                return
            }
            // An open without any flag is the kernel's own (`flags(_:)`), for which it ignores
            // `keep_cache`.
            let keep = view.policy.writeBack || (flags != 0 && view.hasUnchangedData(node, status))
            guard
                let handle = view.registerOpen(
                    opened, of: id.rawValue, node, flags, info, keepCache: keep, appendsOnly: appendsOnly, request)
            else {
                request.reply(error: ENFILE)
                return
            }
            view.probeOplock(opening: handle, id.rawValue, node)
            if !request.reply(file: info) { view.release(handle, of: id.rawValue) }
        }
    }

    /// Parks an open that met a lease. Never inlined, to keep it off the path of other opens.
    @inline(never)
    private func awaitLease(_ request: consuming Request, _ node: NodePointer, _ descriptor: Int32) {
        let call = pendingCall(of: descriptor, request, scope: node.pointee.scope)
        leases.wait(request, in: node.pointee.scope, call)
    }

    /// CREATE: creates and opens a file.
    ///
    /// With O_TMPFILE the file has no name, and LINK can name it later.
    static func create(
        _ view: ViewFS, _ request: consuming Request, _ parent: NodeID, _ name: UnsafePointer<CChar>, _ mode: mode_t,
        _ info: UnsafeMutablePointer<OpenFileInfo>
    ) {
        if parent.isVirtual {
            request.reply(error: EACCES)
            return
        }
        let flags = info.pointee.flags
        view.onNode(request, parent, for: .write, name: name) { request, node, directory in
            // Before anything is created.
            let user = request.caller.uid
            guard view.tree.hasRoom(scope: node.pointee.scope, user: user) else {
                _ = view.audit(request, node, directory, error: ENFILE)
                request.reply(error: ENFILE)
                return
            }
            view.lastCalls.record(request.caller.pid, in: node.pointee.scope, installs: true)
            var parameters = EntryParameters()
            var error: Int32 = 0
            let opened: Int32
            if let document = view.document(of: parent, node, named: name) {
                opened = document.withStep {
                    let refusal = document.isNamed(name) ? view.mayBegin(document, as: request.caller) : -EACCES
                    if refusal < 0 { return refusal }
                    let opened = view.make((directory, stagedName), mode, flags, found: (parent, node), request, &parameters, &error)
                    if opened >= 0, error == 0 { view.begin(document, parameters.ino, flags, as: request.caller) }
                    return opened
                }
            } else {
                opened = view.make((directory, name), mode, flags, found: (parent, node), request, &parameters, &error)
            }
            if opened < 0 {
                request.reply(error: opened == -EEXIST && flags & O_EXCL == 0 ? ESTALE : Errno.number(of: opened))
                return
            }
            if view.kernelOpens {
                let isNameless = flags & clinux_O_TMPFILE == clinux_O_TMPFILE
                return view.replyCreated(request, opened, flags, error, &parameters, isNameless: isNameless, info)
            }
            guard error == 0, let child = view.tree.nodes.find(parameters.ino),
                let handle = view.registerOpen(opened, of: parameters.ino, child, flags, info, keepCache: view.policy.writeBack, request)
            else {
                if error != 0 { _ = clinux_close(opened) }
                if error == 0 { view.tree.forget(parameters.ino, 1) }
                request.reply(error: error != 0 ? error : ENFILE)
                return
            }
            if !request.reply(entry: &parameters, file: info) {
                view.release(handle, of: parameters.ino)
                view.tree.forget(parameters.ino, 1)
            }
        }
    }

    /// Makes and opens a file, and enters it as a node.
    ///
    /// Returns its descriptor or a negative error number. `error` gets the result of `enter`.
    ///
    /// Always exclusive: a file that another process created meanwhile could be a FIFO or a link.
    /// The kernel takes the reply to CREATE for a new file, so it has not checked whether the
    /// caller may open that file. ESTALE makes it look up the name again (fs/namei.c,
    /// LOOKUP_REVAL), and check.
    private func make(
        _ entry: Named, _ mode: mode_t, _ flags: Int32, found parent: (id: NodeID, node: NodePointer), _ request: borrowing Request,
        _ parameters: inout EntryParameters, _ error: inout Int32
    ) -> Int32 {
        let mode = creationMode(mode, in: entry.directory, for: request.caller)
        Identity.assumeMask(request.caller.umask)
        let isNameless = flags & clinux_O_TMPFILE == clinux_O_TMPFILE
        let creation = backingFlags(flags) | (isNameless ? flags & O_EXCL : O_CREAT | O_EXCL | O_NOFOLLOW)
        let place = isNameless ? AuditedPlace.file(entry.directory) : .entry(entry.directory, entry.text)
        let moment = hostWatch.renamesSeen
        let opened = audited(request, parent.node, place, detail: isNameless ? "created without a name" : "created") {
            Identity.withReserve(of: request.caller) {
                tree.evictingIfNeeded {
                    if isNameless { return clinux_open_nameless(entry.directory, creation, mode) }
                    return making((parent, entry.directory, entry.text, request.caller), S_IFREG) {
                        clinux_open_beneath(
                            entry.directory, entry.text, creation, mode, parent.node.pointee.withOwner { $0.crossesMounts })
                    }
                }
            }
        }
        if opened < 0 { return opened }
        let path = tree.evictingIfNeeded { clinux_reopen(keepingAccessTime(opened), clinux_O_PATH) }
        if path < 0 {
            _ = clinux_close(opened)
            return path
        }
        InjectedFault.stop(at: "entering")
        error = enter(path, isNameless ? nil : entry.text, found: parent, since: moment, into: &parameters)
        recordMode(parameters.attr.st_mode)
        InjectedFault.stop(at: "created")
        return opened
    }

    /// Replies to CREATE on mounts where the kernel opens files by itself.
    ///
    /// The kernel continues by node. The descriptor is cached, since a second open with the same
    /// flags may fail.
    @inline(never)
    private func replyCreated(
        _ request: consuming Request, _ opened: Int32, _ flags: Int32, _ error: Int32, _ parameters: inout EntryParameters,
        isNameless: Bool,
        _ info: UnsafeMutablePointer<OpenFileInfo>
    ) {
        guard error == 0, let node = tree.nodes.find(parameters.ino) else {
            _ = clinux_close(opened)
            request.reply(error: error == 0 ? ENFILE : error)
            return
        }
        let caller = request.caller
        if isNameless { node.pointee.markNameless() }
        if flags & O_ACCMODE != O_RDONLY { node.pointee.recordWriter(user: caller.uid, group: caller.gid, process: caller.pid) }
        node.pointee.beginUse()
        let failure = cacheFile(opened, of: parameters.ino, node, backingFlags(flags), as: caller).error
        node.pointee.endUse()
        info.pointee.fh = 0
        info.pointee.keep_cache = 1
        if failure < 0 {
            tree.forget(parameters.ino, 1)
            request.reply(failure: failure)
        } else if !request.reply(entry: &parameters, file: info) {
            tree.forget(parameters.ino, 1)
        }
    }

    /// RELEASE: closes an open file after its last close(2).
    static func release(_ view: ViewFS, _ request: consuming Request, _ id: NodeID, _ info: OpenFileInfo) {
        // Never refused. The file is closed when the last operation on it has left.
        guard let file = view.files.acquire(info.fh) else {
            request.reply(error: 0)
            return
        }
        let (scope, slot) = (file.pointee.scope, request.worker.pointee.slot)
        file.pointee.isReleased.store(true, ordering: .releasing)
        view.settleTime(of: file, slot: slot)
        view.files.drop(info.fh)
        // Closing may wait for the filesystem, so the worker is counted inside the scope.
        let isCongested = view.coordinator.forceEnter(ScopeID(rawValue: scope), slot: slot)
        if isCongested {
            view.coordinator.leave(slot: slot)
            request.reply(error: 0)
            view.closeQueue.close(info.fh, of: id.rawValue, in: scope)
        } else {
            view.locks.releaseFile(info.fh, of: id)
            request.reply(error: 0)
            view.release(info.fh, of: id.rawValue)
            view.coordinator.leave(slot: slot)
        }
    }

    /// The rest of `release`, called later by `closeQueue`.
    func closeReleased(_ handle: UInt64, of id: NodeID) {
        locks.releaseFile(handle, of: id)
        release(handle, of: id.rawValue)
    }

    private static func entry(for flags: Int32) -> Entry {
        flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0 ? .write : .read
    }

    /// The flags with which the daemon opens a file for a caller's flags.
    ///
    /// Without O_APPEND, because each write says whether it appends. Without O_DIRECT, because the
    /// buffers are the daemon's. Without all flags that create or truncate.
    func backingFlags(_ flags: Int32) -> Int32 {
        var result = flags & ~(O_APPEND | O_CREAT | O_EXCL | O_TRUNC | O_NOCTTY | O_NOFOLLOW | clinux_O_DIRECT | O_CLOEXEC)
        // Write-back reads pages that are partially written.
        if policy.writeBack, flags & O_ACCMODE == O_WRONLY { result = (result & ~O_ACCMODE) | O_RDWR }
        return result
    }

    /// Opens the file behind an O_PATH descriptor.
    ///
    /// Returns a descriptor or a negative error number, and whether the descriptor only appends.
    private func reopen(_ descriptor: Int32, _ flags: Int32, as caller: Caller) -> (opened: Int32, appendsOnly: Bool) {
        let backing = backingFlags(flags) | O_NONBLOCK
        var result = tree.evictingIfNeeded { clinux_reopen(descriptor, backing) }
        if result == -EACCES, policy.writeBack, flags & O_ACCMODE == O_WRONLY {
            result = clinux_reopen(descriptor, (backing & ~O_ACCMODE) | O_WRONLY)
        }
        if result == -EPERM, flags & clinux_O_NOATIME != 0 {
            result = Identity.asOwner(caller, has: { rights(of: caller, over: descriptor) }) { clinux_reopen(descriptor, backing) }
        }
        // An append-only file (FS_APPEND_FL) can only be opened with O_APPEND.
        guard result == -EPERM, flags & O_APPEND != 0 else { return (keepingAccessTime(result), false) }
        return (tree.evictingIfNeeded { clinux_reopen(descriptor, (backing & ~O_ACCMODE) | flags & O_ACCMODE | O_APPEND) }, true)
    }

    /// Registers an opened descriptor and fills in the reply to the kernel.
    ///
    /// Takes ownership of the descriptor even if it returns nil.
    private func registerOpen(
        _ opened: Int32, of id: UInt64, _ node: NodePointer, _ flags: Int32, _ info: UnsafeMutablePointer<OpenFileInfo>,
        keepCache: Bool, appendsOnly: Bool = false, _ request: borrowing Request
    ) -> UInt64? {
        let (worker, caller) = (request.worker, request.caller)
        let descriptor = FileDescriptor(owning: opened)
        guard tree.reserveShare(scope: node.pointee.scope, user: caller.uid) else { return nil }
        let file = OpenFile(
            descriptor: descriptor, node: id, scope: node.pointee.scope, opener: (caller.uid, caller.gid, caller.pid), flags: flags,
            appendsOnly: appendsOnly)
        if lostWrites.isAny { lostWrites.begin(file) }
        let canWrite = file.canWrite
        guard let handle = files.add(file, by: worker.pointee.slot) else { return nil }
        // Added first and checked afterwards. A thread that refuses a node uses the opposite order.
        let containment = node.pointee.containment.load(ordering: .sequentiallyConsistent)
        if containment & Containment.inherited != 0 { files.inherit(containment, handle) }
        node.pointee.openers.wrappingAdd(1, ordering: .relaxed)
        if canWrite {
            node.pointee.writers.wrappingAdd(1, ordering: .relaxed)
            node.pointee.wasOpenForWriting.store(true, ordering: .releasing)
        }
        info.pointee.fh = handle
        info.pointee.keep_cache = keepCache ? 1 : 0
        info.pointee.direct_io = appendsOnly || usesDirectIO(flags, worker) ? 1 : 0
        return handle
    }

    /// Whether a file is opened past the kernel's cache. Never under write-back. Two cases:
    /// - A file opened for appending must bypass the cache. The kernel would split a write that
    ///   crosses an uncached page into two requests (fs/fuse/file.c, fuse_fill_write_pages).
    ///   Another program's line could come in between. If the file can also be read, this applies
    ///   only if it can still be mapped.
    /// - A file opened only for writing saves a copy. It also saves a cached page that the next
    ///   check of the times would drop (FUSE_CAP_AUTO_INVAL_DATA). The kernel must make sure that
    ///   other programs do not read old pages. Each write is a request in any case.
    private func usesDirectIO(_ flags: Int32, _ worker: UnsafeMutablePointer<Worker>) -> Bool {
        if policy.writeBack { return false }
        let appends = flags & O_APPEND != 0
        switch flags & O_ACCMODE {
        case O_WRONLY: return appends || worker.pointee.dropsCacheAtDirectWrites
        case O_RDWR: return appends && worker.pointee.mapsDirectly
        default: return false
        }
    }

    /// Undoes `registerOpen`.
    func release(_ handle: UInt64, of id: UInt64) {
        guard let file = files.acquire(handle) else { return }
        if let node = tree.nodes.find(id) {
            if file.pointee.canWrite { node.pointee.writers.wrappingSubtract(1, ordering: .relaxed) }
            let left = node.pointee.openers.wrappingSubtract(1, ordering: .relaxed).newValue
            if left == 0 { oplocks?.closed(id, node) }
        }
        files.drop(handle)
        files.drop(handle)
    }

    /// Whether a removed file is being opened by a stale name in the kernel's cache.
    ///
    /// True if it is not open and was not found just now. ESTALE then makes the kernel look up the
    /// name again (fs/namei.c, LOOKUP_REVAL). A file that was found just now and replaced by a
    /// rename meanwhile is opened, as natively. So is a file that the kernel opens again without a
    /// lookup, held by an O_PATH descriptor.
    func wasOpenedByStaleName(_ node: NodePointer) -> Bool {
        node.pointee.openers.load(ordering: .relaxed) == 0
            && Clock.monotonic &- node.pointee.found.load(ordering: .relaxed) > 20_000_000
            && !node.pointee.reportedStale.exchange(true, ordering: .relaxed)
    }

    /// Whether the file is unchanged since the kernel last began to cache it.
    ///
    /// A file changed within the clock's granularity could change again unnoticed. So the next open
    /// does not trust data cached at that time.
    func hasUnchangedData(_ node: NodePointer, _ status: borrowing FileStatus) -> Bool {
        if policy.distrustsData { return false }
        let changed = status.st.st_mtim
        let nanoseconds = Int64(truncatingIfNeeded: changed.tv_sec &* 1_000_000_000 &+ changed.tv_nsec)
        var version = UInt64(bitPattern: nanoseconds) &* 0x9E37_79B9_7F4A_7C15
        version ^= UInt64(truncatingIfNeeded: status.st.st_size) &* 0xC2B2_AE3D_27D4_EB4F
        version |= 1
        let isSettled = Clock.realtime &- nanoseconds > 20_000_000
        return node.pointee.dataVersion.exchange(isSettled ? version : 0, ordering: .relaxed) == version
    }
}
