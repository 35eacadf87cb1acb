/// The stored form of a bookmark: `GFBM`, a version of 16 bits, the fields, a checksum of 64 bits over all of that.
extension Bookmark {
    /// Why bytes cannot be decoded as a bookmark.
    public enum DecodingFlaw: String, Error, Sendable {
        case notABookmark = "it is not a bookmark"
        case newer = "it was written by a newer version of grantfs"
        case damaged = "its checksum does not fit"
        case malformed = "its fields make no sense"
    }

    private static let magic = Array("GFBM".utf8)
    private static let version: UInt16 = 4
    /// The version of bookmarks of directories: programs from before documents can read it.
    private static let versionWithoutDocument: UInt16 = 3
    /// Older versions, without an origin or without a tag, can be read. They are written again as the present one.
    private static let versionWithoutOrigin: UInt16 = 1
    private static let versionWithoutTag: UInt16 = 2
    /// Detects damage. It keeps no forgery out: the store's seal does, which has a secret key.
    private static let checksum = SipHash(key0: 0x6772_616e_7466_7320, key1: 0x626f_6f6b_6d61_726b)

    public func encoded() -> [UInt8] {
        var writer = BinaryWriter()
        writer.write(filesystem.uuid)
        writer.write(filesystem.type)
        writer.write(optional: filesystem.bootID) { $0.write($1) }
        writer.write(optional: filesystem.fsid) { $0.write($1) }
        writer.write(optional: filesystem.source) { $0.write($1) }
        writer.write(optional: handle) { writer, handle in
            writer.write(handle.type)
            writer.write(handle.bytes)
        }
        writer.write(identity)
        writer.write(path)
        writer.write(owner)
        writer.write(created.nanoseconds)
        writer.write(optional: origin) { $0.write($1) }
        writer.write(optional: tag) { $0.write($1.bytes) }
        if let document {
            writer.write(document.name.bytes)
            writer.write(document.form.rawValue)
        }

        var whole = Bookmark.magic
        let version = document == nil ? Bookmark.versionWithoutDocument : Bookmark.version
        withUnsafeBytes(of: version.bigEndian) { whole.append(contentsOf: $0) }
        whole.append(contentsOf: writer.bytes)
        let sum = Bookmark.checksum.hash(whole)
        withUnsafeBytes(of: sum.bigEndian) { whole.append(contentsOf: $0) }
        return whole
    }

    /// Decodes arbitrary bytes. Anything but exactly one whole bookmark is an error.
    public init(encoded bytes: [UInt8]) throws(DecodingFlaw) {
        let header = Bookmark.magic.count + 2
        guard bytes.count >= header + 8, bytes.starts(with: Bookmark.magic) else { throw .notABookmark }
        let body = bytes[..<(bytes.count - 8)]
        do {
            var tail = BinaryReader(bytes[(bytes.count - 8)...])
            guard try tail.read(UInt64.self) == Bookmark.checksum.hash(body) else { throw DecodingFlaw.damaged }
            var reader = BinaryReader(body[Bookmark.magic.count...])
            let version = try reader.read(UInt16.self)
            guard version <= Bookmark.version else { throw DecodingFlaw.newer }
            guard version >= Bookmark.versionWithoutOrigin else { throw DecodingFlaw.malformed }
            try self.init(fields: &reader)
            if version > Bookmark.versionWithoutOrigin {
                origin = try reader.readOptional { (reader) throws(BinaryReader.Flaw) in try BookmarkOrigin(fields: &reader) }
            }
            if version > Bookmark.versionWithoutTag,
                let bytes = try reader.readOptional({ (reader) throws(BinaryReader.Flaw) in try reader.readBytes() })
            {
                guard let tag = DirectoryTag(bytes: bytes) else { throw DecodingFlaw.malformed }
                self.tag = tag
            }
            if version > Bookmark.versionWithoutDocument {
                guard let name = try? GrantName(entry: try reader.readBytes()),
                    let form = DocumentBookmark.Form(rawValue: try reader.read(UInt8.self))
                else { throw DecodingFlaw.malformed }
                document = DocumentBookmark(name: name, form: form)
            }
            guard reader.isAtEnd else { throw DecodingFlaw.malformed }
        } catch let flaw as DecodingFlaw {
            throw flaw
        } catch {
            throw .malformed
        }
        guard path.first == 0x2F, !path.contains(0), filesystem.uuid.count <= 16, (handle?.bytes.count ?? 0) <= 128 else {
            throw .malformed
        }
    }

    private init(fields reader: inout BinaryReader) throws(BinaryReader.Flaw) {
        let filesystem = FilesystemIdentity(
            uuid: try reader.readBytes(),
            type: try reader.readString(),
            bootID: try reader.readOptional { (reader) throws(BinaryReader.Flaw) in try reader.readString() },
            fsid: try reader.readOptional { (reader) throws(BinaryReader.Flaw) in try reader.read(UInt64.self) },
            source: try reader.readOptional { (reader) throws(BinaryReader.Flaw) in try reader.readBytes() })
        let handle = try reader.readOptional { (reader) throws(BinaryReader.Flaw) in
            FileHandle(type: try reader.read(Int32.self), bytes: try reader.readBytes())
        }
        let identity = try FileIdentity(fields: &reader)
        self.init(
            filesystem: filesystem, handle: handle, identity: identity,
            path: try reader.readBytes(), owner: try reader.read(UInt32.self),
            created: Instant(nanoseconds: try reader.read(Int64.self)))
    }
}

extension FileIdentity {
    fileprivate init(fields reader: inout BinaryReader) throws(BinaryReader.Flaw) {
        self.init(
            inode: try reader.read(UInt64.self),
            generation: try reader.readOptional { (reader) throws(BinaryReader.Flaw) in try reader.read(UInt32.self) },
            birthTime: try reader.readOptional { (reader) throws(BinaryReader.Flaw) in
                Instant(nanoseconds: try reader.read(Int64.self))
            })
    }
}

extension BookmarkOrigin {
    fileprivate init(fields reader: inout BinaryReader) throws(BinaryReader.Flaw) {
        var ancestors: [FileIdentity] = []
        // The count is not trusted, so nothing is reserved for it: the input ends before a wrong count does.
        for _ in 0..<(try reader.read(UInt32.self)) { ancestors.append(try FileIdentity(fields: &reader)) }
        self.init(ancestors: ancestors, bootID: try reader.readString(), madeBy: try reader.read(UInt32.self))
    }
}

extension BinaryWriter {
    fileprivate mutating func write(_ identity: FileIdentity) {
        write(identity.inode)
        write(optional: identity.generation) { $0.write($1) }
        write(optional: identity.birthTime) { $0.write($1.nanoseconds) }
    }

    fileprivate mutating func write(_ origin: BookmarkOrigin) {
        write(UInt32(truncatingIfNeeded: origin.ancestors.count))
        for ancestor in origin.ancestors { write(ancestor) }
        write(origin.bootID)
        write(origin.madeBy)
    }
}
