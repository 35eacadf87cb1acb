import GrantModel
import GrantSystem

// Requests and answers as bytes, for the helper process. Both ends are the same program, so there is no version.
extension ProbeRequest {
    package func write(to writer: inout BinaryWriter) {
        switch self {
        case .find(let bookmark, let held):
            writer.write(UInt8(1))
            writer.write(bookmark.encoded())
            writer.write(optional: held) { $0.write($1) }
        case .bookmark(let path):
            writer.write(UInt8(2))
            writer.write(path)
        case .canonical(let path):
            writer.write(UInt8(3))
            writer.write(path)
        case .tag(let bookmark, let tag):
            writer.write(UInt8(4))
            writer.write(bookmark.encoded())
            writer.write(optional: tag) { $0.write($1.bytes) }
        case .listing(let path):
            writer.write(UInt8(5))
            writer.write(path)
        case .links(let path, let names):
            writer.write(UInt8(6))
            writer.write(path)
            writer.write(names: names)
        case .document(let path, let form):
            writer.write(UInt8(7))
            writer.write(path)
            writer.write(form.rawValue)
        }
    }

    /// nil for invalid bytes.
    package init?(from reader: inout BinaryReader) {
        switch try? reader.read(UInt8.self) {
        case 1:
            guard let bookmark = reader.bookmark(), let held = reader.optionalBytes() else { return nil }
            self = .find(bookmark, heldAt: held.value)
        case 2:
            guard let path = try? reader.readBytes() else { return nil }
            self = .bookmark(directory: path)
        case 3:
            guard let path = try? reader.readBytes() else { return nil }
            self = .canonical(path)
        case 4:
            guard let bookmark = reader.bookmark(), let tag = reader.optionalBytes() else { return nil }
            self = .tag(bookmark, tag.value.flatMap { DirectoryTag(bytes: $0) })
        case 5:
            guard let path = try? reader.readBytes() else { return nil }
            self = .listing(directory: path)
        case 6:
            guard let path = try? reader.readBytes(), let names = reader.names() else { return nil }
            self = .links(directory: path, names: names)
        case 7:
            guard let path = try? reader.readBytes(), let form = (try? reader.read(UInt8.self)).flatMap(DocumentBookmark.Form.init) else {
                return nil
            }
            self = .document(path, form)
        default: return nil
        }
    }
}

extension ProbeAnswer {
    package func write(to writer: inout BinaryWriter) {
        switch self {
        case .found(let found):
            writer.write(UInt8(1))
            writer.write(found.finding.rawValue)
            writer.write(optional: found.path) { $0.write($1) }
            writer.write(UInt8(found.isInTrash ? 1 : 0))
            writer.write(optional: found.copy) { $0.write($1) }
        case .bookmarked(let named):
            writer.write(UInt8(2))
            writer.write(named.bookmark.encoded())
            writer.write(named.device.major)
            writer.write(named.device.minor)
            writer.write(optional: named.tag) { $0.write($1.bytes) }
        case .canonical(let path):
            writer.write(UInt8(3))
            writer.write(path)
        case .tagged(let before):
            writer.write(UInt8(4))
            writer.write(optional: before) { $0.write($1.bytes) }
        case .failed(let error):
            writer.write(UInt8(5))
            writer.write(UInt8(truncatingIfNeeded: GrantError.Code.allCases.firstIndex(of: error.code) ?? 0))
            writer.write(error.message)
            writer.write(optional: error.cause) { $0.write($1) }
            writer.write(optional: error.advice) { $0.write($1) }
        case .errno(let error):
            writer.write(UInt8(6))
            writer.write(error.rawValue)
        case .unresponsive: writer.write(UInt8(7))
        case .listed(let listing):
            writer.write(UInt8(8))
            writer.write(listing.path)
            writer.write(names: listing.directories)
            writer.write(names: listing.links)
        case .links(let names):
            writer.write(UInt8(9))
            writer.write(names: names)
        }
    }

    /// nil for invalid bytes.
    package init?(from reader: inout BinaryReader) {
        switch try? reader.read(UInt8.self) {
        case 1:
            guard let word = try? reader.readString(), let finding = BookmarkFinding(rawValue: word), let path = reader.optionalBytes(),
                let isInTrash = try? reader.read(UInt8.self), let copy = reader.optionalBytes()
            else { return nil }
            self = .found(FoundDirectory(finding: finding, path: path.value, isInTrash: isInTrash != 0, copy: copy.value))
        case 2:
            guard let bookmark = reader.bookmark(), let major = try? reader.read(UInt32.self), let minor = try? reader.read(UInt32.self),
                let tag = reader.optionalBytes()
            else { return nil }
            self = .bookmarked(
                NamedDirectory(
                    bookmark: bookmark, device: DeviceNumber(major: major, minor: minor), tag: tag.value.flatMap { DirectoryTag(bytes: $0) }
                ))
        case 3:
            guard let path = try? reader.readBytes() else { return nil }
            self = .canonical(path)
        case 4:
            guard let tag = reader.optionalBytes() else { return nil }
            self = .tagged(before: tag.value.flatMap { DirectoryTag(bytes: $0) })
        case 5:
            guard let index = try? reader.read(UInt8.self), index < GrantError.Code.allCases.count, let message = try? reader.readString(),
                let cause = reader.optionalBytes(), let advice = reader.optionalBytes()
            else { return nil }
            let text = { (bytes: [UInt8]?) in bytes.map { String(decoding: $0, as: UTF8.self) } }
            self = .failed(
                GrantError(GrantError.Code.allCases[Int(index)], message, cause: text(cause.value), advice: text(advice.value)))
        case 6:
            guard let number = try? reader.read(Int32.self) else { return nil }
            self = .errno(Errno(number))
        case 7: self = .unresponsive
        case 8:
            guard let path = try? reader.readBytes(), let directories = reader.names(), let links = reader.names() else { return nil }
            self = .listed(DirectoryListing(path: path, directories: directories, links: links))
        case 9:
            guard let names = reader.names() else { return nil }
            self = .links(names)
        default: return nil
        }
    }
}

extension BinaryWriter {
    fileprivate mutating func write(names: [[UInt8]]) {
        write(UInt32(truncatingIfNeeded: names.count))
        for name in names { write(name) }
    }
}

extension BinaryReader {
    fileprivate mutating func names() -> [[UInt8]]? {
        guard let count = try? read(UInt32.self) else { return nil }
        var names: [[UInt8]] = []
        for _ in 0..<count {
            guard let name = try? readBytes() else { return nil }
            names.append(name)
        }
        return names
    }

    fileprivate mutating func bookmark() -> Bookmark? {
        guard let bytes = try? readBytes() else { return nil }
        return try? Bookmark(encoded: bytes)
    }

    /// An optional value that was decoded.
    fileprivate struct Optional {
        let value: [UInt8]?
    }

    fileprivate mutating func optionalBytes() -> Optional? {
        do {
            return Optional(value: try readOptional { (reader) throws(Flaw) in try reader.readBytes() })
        } catch {
            return nil
        }
    }
}
