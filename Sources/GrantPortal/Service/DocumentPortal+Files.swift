import Glibc
import GrantAdministration
import GrantBookmarks
import GrantModel
import GrantSystem

// Finds the file for a document from a caller's arguments.
extension DocumentPortal {
    func add(_ given: [GivenDescriptor], _ wish: Documents.Wish) throws(PortalError) -> [String] {
        let kind: FileTranslation.Kind = wish.flags.contains(.exportDirectory) ? .directory : .file
        var additions: [Documents.Addition] = []
        for descriptor in given { additions.append(try addition(descriptor, kind, wish.caller)) }
        return try documents.add(additions, wish)
    }

    /// Returns the file that a descriptor is of, or the document. Throws `.invalidArgument` for a
    /// descriptor that proves nothing.
    func addition(
        _ given: GivenDescriptor, _ kind: FileTranslation.Kind, _ caller: Caller, takesOpenFiles: Bool = false
    ) throws(PortalError) -> Documents.Addition {
        // Another daemon may have made a new mount by now.
        let mounted = try? Mountpoint(canonical: mount.path).mounted()
        let translation = FileTranslation(documents: mounted?.device, takesOpenFiles: takesOpenFiles)
        switch try translation.find(given, kind, caller: caller) {
        case .host(let file): return .file(file)
        case .inDocuments(let names, let status, let isWritable): return try shown(names[...], status, isWritable, caller)
        }
    }

    /// Returns the document of a file in the mount of documents, or a file of the host if the
    /// document is a directory.
    private func shown(
        _ names: ArraySlice<[UInt8]>, _ status: FileStatus, _ isWritable: Bool, _ caller: Caller
    ) throws(PortalError) -> Documents.Addition {
        var (names, app) = (names, "")
        if names.first == Array("by-app".utf8) {
            app = String(decoding: names.dropFirst().first ?? [], as: UTF8.self)
            names = names.dropFirst(2)
            guard !app.isEmpty else { throw PortalError.noDescriptor }
        }
        // A sandbox has its own part of the mount, and nothing of another's.
        guard caller.isOwner || caller.app == app, let first = names.popFirst(), let name = names.popFirst() else {
            throw PortalError.noDescriptor
        }
        let id = String(decoding: first, as: UTF8.self)
        guard let document = documents.state.withLock({ $0.documents[id] }), documents.fileName(of: id) == name else {
            throw PortalError.noDescriptor
        }
        let source = DocumentSource(id: id, app: app)
        guard documents.permissions(of: caller, by: source).contains(.read) else { throw PortalError.noDescriptor }
        if names.isEmpty, document.flags.contains(.directory) == (status.st.st_mode & S_IFMT == S_IFDIR) { return .document(source) }
        guard document.flags.contains(.directory), !names.isEmpty, let grant = documents.state.withLock({ $0.host(id) }),
            let host = file(names, in: grant.bookmark, shownAs: status), let there = try? host.descriptor.status()
        else { throw PortalError.noDescriptor }
        let path = names.reduce(grant.bookmark.path) { CanonicalPath.join($0, $1) }
        let own = documents.permissions(of: caller, by: source)
        return .file(
            GivenFile(host: host, status: there, path: path, isWritable: isWritable && own.contains(.write), source: source))
    }

    /// Opens with O_PATH a file of the host in the directory of a document, as the mount of
    /// documents shows it. The host may have renamed that directory, or mounted something over it,
    /// while the mount goes on to show it: then the result is nil, and the object in its place is
    /// not used.
    private func file(_ names: ArraySlice<[UInt8]>, in directory: Bookmark, shownAs status: FileStatus) -> GivenDescriptor? {
        guard let top = BookmarkResolver().openAtRecordedPath(directory),
            // As the mount, which enters no other filesystem either.
            let opened = try? FileDescriptor.openBeneath(
                top.number, Array(names.joined(separator: [0x2F])), OpenFlags.path | O_NOFOLLOW, crossMounts: false),
            let there = try? opened.status(), there.isShown(as: status)
        else { return nil }
        return GivenDescriptor(opened)
    }

    /// A document by its directory and name. One that is not there yet is made, empty: a bookmark is of a file. Programs outside of sandboxes alone may ask, because the answer
    /// says what there is.
    func addNamed(_ given: GivenDescriptor, _ name: BusValue, _ wish: Documents.Wish) throws(PortalError) -> String {
        guard wish.caller.isOwner else { throw PortalError.notAllowed }
        guard !wish.flags.contains(.exportDirectory) else { throw PortalError(.invalidArgument, "Invalid flags") }
        guard let bytes = name.path, let name = try? GrantName(entry: bytes), name.isUTF8 else {
            throw PortalError(.invalidArgument, "Invalid filename passed")
        }
        guard case .file(let directory) = try addition(given, .directory, wish.caller) else { throw PortalError.noDescriptor }
        guard directory.isWritable else { throw PortalError.notAllowed }
        let path = CanonicalPath.join(directory.path, name.bytes)
        if wish.flags.contains(.asNeededByApp), !wish.app.isEmpty,
            AppFiles.reaches(wish.app, path, writing: wish.permissions.contains(.write))
        {
            return ""
        }
        do throws(Errno) {
            // The file is never a link's target, and never replaces an existing file.
            _ = try FileDescriptor.openAt(
                directory.host.descriptor.number, name.bytes, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY, mode: 0o666)
        } catch {
            guard error == Errno(EEXIST) else { throw PortalError(.failed, "the file cannot be made: \(error)") }
        }
        guard let opened = try? FileDescriptor.openAt(directory.host.descriptor.number, name.bytes, OpenFlags.path | O_NOFOLLOW),
            let status = try? opened.status(), status.st.st_mode & S_IFMT == S_IFREG
        else { throw PortalError.noDescriptor }
        let file = GivenFile(host: GivenDescriptor(opened), status: status, path: path, isWritable: true)
        return try documents.add([.file(file)], wish).first ?? ""
    }

    /// Returns the document of the file at a path of the host.
    func lookup(_ path: [UInt8], _ caller: Caller) throws(PortalError) -> String? {
        guard path.first == 0x2F else { throw PortalError(.invalidArgument, "The path is not absolute") }
        let opened: FileDescriptor
        do throws(Errno) {
            opened = try FileDescriptor.open(path, OpenFlags.path)
        } catch {
            throw PortalError(error == Errno(ENOENT) ? .notFound : .failed, error.description)
        }
        let own = Caller(name: caller.name, pid: getpid(), app: nil)
        switch try addition(GivenDescriptor(opened), .any, own) {
        case .document(let source): return source.id
        case .file(let file):
            let proposal = try documents.propose(file)
            // A document that was made as a unique one is not found by its file.
            let found = documents.state.withLock { $0.documents(of: proposal.bookmark) }.filter { !$0.flags.contains(.unique) }
            return (found.first { !$0.isTransient } ?? found.first)?.id
        }
    }
}

extension FileStatus {
    /// Whether this can be the file that the mount of documents shows so: by its number, to which the mount adds in the upper 16 bits of which filesystem it is
    /// (`InodeNumbering`), its birth time, and its type.
    func isShown(as shown: FileStatus) -> Bool {
        let isNumber = (st.st_ino ^ shown.st.st_ino) << 16 == 0 || (st.st_ino == 1 && shown.st.st_ino == 1 << 47 | 1)
        guard isNumber, st.st_mode & S_IFMT == shown.st.st_mode & S_IFMT else { return false }
        guard has_birth, shown.has_birth else { return true }
        return birth_seconds == shown.birth_seconds && birth_nanoseconds == shown.birth_nanoseconds
    }
}
