import GrantAdministration
import GrantModel

/// The contents of a URL's bookmark. It leads back to the item by one of three routes, whose results are always verified.
struct BookmarkData: Equatable {
    /// A directory, and perhaps a file in it. A file usually gets another identity when it is
    /// saved, because a new file is renamed over the old one. So a file is identified by its
    /// directory and its name. Its own identity only helps to find it under another name there.
    struct Item: Equatable {
        var directory: Bookmark
        var leaf: Leaf?
        /// The former path on the host.
        var path: [UInt8] { leaf.map { CanonicalPath.join(directory.path, $0.name) } ?? directory.path }
    }

    struct Leaf: Equatable {
        var name: [UInt8]
        var identity: FileIdentity
    }

    enum Route: Equatable {
        /// By identity alone.
        case item(Item)
        /// Through a grant of a store. `below` is the path within the grant.
        case grant(GrantID, store: UInt64, below: [UInt8], Item)
        /// By name in a mounted view, for a program that sees the mount and not the store. `directory` is the granted directory's inode
        /// number without the upper 16 bits, which each mount assigns. It is needed because other stores may have views and grants
        /// of the same names.
        case view(name: [UInt8], grant: [UInt8], directory: UInt64, below: [UInt8])
    }

    /// The former path as it was given, canonical: on the host or in a mount.
    var path: [UInt8]
    var isDirectory: Bool
    var route: Route
    /// The resource values of the item as it was, for programs that show it without resolving the data.
    var values: [String: BookmarkValue] = [:]
}

/// The encoding: `GFUB`, a version of 16 bits, the fields, the store's seal (with a grant), a checksum of 64 bits over all of that.
/// Only data with resource values has the newer version, so that older programs read the rest.
extension BookmarkData {
    private static let magic = Array("GFUB".utf8)
    private static let version: UInt16 = 1
    private static let versionWithValues: UInt16 = 2
    /// Detects damage. Forgeries are kept out by the seal.
    private static let checksum = SipHash(key0: 0x6772_616e_7466_7320, key1: 0x7572_6c62_6f6f_6b73)

    /// `seal` computes the store's seal over the bytes of a bookmark with a grant.
    func encoded(seal: ([UInt8]) -> UInt64) -> [UInt8] {
        var writer = BinaryWriter()
        writer.write(path)
        writer.write(UInt8(isDirectory ? 1 : 0))
        switch route {
        case .item(let item):
            writer.write(UInt8(1))
            writer.write(item)
        case .grant(let id, let store, let below, let item):
            writer.write(UInt8(2))
            writer.write(id.high)
            writer.write(id.low)
            writer.write(store)
            writer.write(below)
            writer.write(item)
        case .view(let name, let grant, let directory, let below):
            writer.write(UInt8(3))
            writer.write(name)
            writer.write(grant)
            writer.write(directory)
            writer.write(below)
        }
        let version = values.isEmpty ? BookmarkData.version : BookmarkData.versionWithValues
        if !values.isEmpty { writer.write(values) }
        var whole = BookmarkData.magic
        withUnsafeBytes(of: version.bigEndian) { whole.append(contentsOf: $0) }
        whole += writer.bytes
        if case .grant = route { whole.append(big: seal(whole)) }
        whole.append(big: BookmarkData.checksum.hash(whole))
        return whole
    }

    /// Decodes arbitrary bytes. Anything but exactly one whole bookmark is `.invalidBookmark`. The
    /// store must verify `seal` over `sealed`. `seal` is nil for a bookmark without a grant.
    static func decoded(_ bytes: [UInt8]) throws(GrantError) -> (data: BookmarkData, sealed: [UInt8], seal: UInt64?) {
        let header = magic.count + 2
        guard bytes.count >= header + 8, bytes.starts(with: magic) else { throw invalid("it is not a bookmark") }
        do {
            let body = bytes[..<(bytes.count - 8)]
            var tail = BinaryReader(bytes[(bytes.count - 8)...])
            guard try tail.read(UInt64.self) == checksum.hash(body) else { throw invalid("its checksum does not fit") }
            var reader = BinaryReader(body[magic.count...])
            let version = try reader.read(UInt16.self)
            guard version <= versionWithValues else { throw invalid("it was written by a newer version") }
            guard version >= self.version else { throw BinaryReader.Flaw.badFlag }
            let path = try reader.readBytes()
            let isDirectory = try reader.read(UInt8.self) == 1
            let route = try Route(fields: &reader)
            let values = version == versionWithValues ? try reader.readValues() : [:]
            var seal: UInt64?
            if case .grant = route { seal = try reader.read(UInt64.self) }
            guard reader.isAtEnd, path.first == UInt8(ascii: "/"), !path.contains(0) else { throw BinaryReader.Flaw.badFlag }
            let sealed = seal == nil ? [] : Array(bytes[..<(bytes.count - 16)])
            return (BookmarkData(path: path, isDirectory: isDirectory, route: route, values: values), sealed, seal)
        } catch let error as GrantError {
            throw error
        } catch {
            throw invalid("its fields make no sense")
        }
    }

    static func invalid(_ cause: String) -> GrantError { GrantError(.invalidBookmark, "the bookmark cannot be used", cause: cause) }
}

extension BookmarkData.Route {
    fileprivate init(fields reader: inout BinaryReader) throws {
        switch try reader.read(UInt8.self) {
        case 1:
            self = .item(try BookmarkData.Item(fields: &reader))
        case 2:
            let id = GrantID(high: try reader.read(UInt64.self), low: try reader.read(UInt64.self))
            let store = try reader.read(UInt64.self)
            let below = try BookmarkData.below(&reader)
            self = .grant(id, store: store, below: below, try BookmarkData.Item(fields: &reader))
        case 3:
            let name = try reader.readBytes()
            let grant = try GrantName(entry: try reader.readBytes()).bytes
            let directory = try reader.read(UInt64.self)
            self = .view(name: name, grant: grant, directory: directory, below: try BookmarkData.below(&reader))
        default: throw BinaryReader.Flaw.badFlag
        }
    }
}

extension BookmarkData {
    /// Reads names joined by `/`, or nothing. Refuses anything that leads upwards.
    fileprivate static func below(_ reader: inout BinaryReader) throws -> [UInt8] {
        let below = try reader.readBytes()
        if below.isEmpty { return below }
        for name in below.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false) {
            _ = try GrantName(entry: Array(name))
        }
        return below
    }
}

extension BookmarkData.Item {
    fileprivate init(fields reader: inout BinaryReader) throws {
        directory = try Bookmark(encoded: try reader.readBytes())
        let hasLeaf = try reader.read(UInt8.self)
        if hasLeaf == 0 { return }
        let name = try GrantName(entry: try reader.readBytes()).bytes
        let inode = try reader.read(UInt64.self)
        let birthTime = try reader.readOptional { (reader) throws(BinaryReader.Flaw) in Instant(nanoseconds: try reader.read(Int64.self)) }
        leaf = BookmarkData.Leaf(name: name, identity: FileIdentity(inode: inode, birthTime: birthTime))
    }
}

extension BinaryWriter {
    fileprivate mutating func write(_ item: BookmarkData.Item) {
        write(item.directory.encoded())
        write(optional: item.leaf) { writer, leaf in
            writer.write(leaf.name)
            writer.write(leaf.identity.inode)
            writer.write(optional: leaf.identity.birthTime) { $0.write($1.nanoseconds) }
        }
    }
}

extension [UInt8] {
    fileprivate mutating func append(big value: UInt64) {
        Swift.withUnsafeBytes(of: value.bigEndian) { append(contentsOf: $0) }
    }
}
