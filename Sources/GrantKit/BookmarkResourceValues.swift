import Foundation
import GrantAdministration
import GrantModel

/// The resource values that a bookmark keeps: those of the item when the data was made.
///
/// There, they are `URLResourceValues`. Foundation on Linux lets no other module make one of all values, so the same properties are here.
public struct BookmarkResourceValues: Sendable {
    private let values: [String: BookmarkValue]

    init(_ values: [String: BookmarkValue]) { self.values = values }

    /// The values by their keys.
    public var allValues: [URLResourceKey: Any] {
        Dictionary(uniqueKeysWithValues: values.map { (URLResourceKey(rawValue: $0), $1.value) })
    }

    public var name: String? { text(.nameKey) }
    public var localizedName: String? { text(.localizedNameKey) }
    public var path: String? { text(.pathKey) }
    public var isDirectory: Bool? { truth(.isDirectoryKey) }
    public var isRegularFile: Bool? { truth(.isRegularFileKey) }
    public var isSymbolicLink: Bool? { truth(.isSymbolicLinkKey) }
    public var isHidden: Bool? { truth(.isHiddenKey) }
    public var isReadable: Bool? { truth(.isReadableKey) }
    public var isWritable: Bool? { truth(.isWritableKey) }
    public var isExecutable: Bool? { truth(.isExecutableKey) }
    public var fileSize: Int? { number(.fileSizeKey) }
    public var linkCount: Int? { number(.linkCountKey) }
    public var creationDate: Date? { date(.creationDateKey) }
    public var contentAccessDate: Date? { date(.contentAccessDateKey) }
    public var contentModificationDate: Date? { date(.contentModificationDateKey) }

    private func text(_ key: URLResourceKey) -> String? { values[key.rawValue]?.value as? String }
    private func truth(_ key: URLResourceKey) -> Bool? { values[key.rawValue]?.value as? Bool }
    private func number(_ key: URLResourceKey) -> Int? { values[key.rawValue]?.value as? Int }
    private func date(_ key: URLResourceKey) -> Date? { values[key.rawValue]?.value as? Date }
}

/// A resource value in a bookmark.
enum BookmarkValue: Equatable, Sendable {
    case text(String)
    case truth(Bool)
    case number(Int64)
    /// Since 2001.
    case date(seconds: Double)

    /// The greatest number of values in one bookmark.
    fileprivate static let maxCount = 256

    /// A value of any other type is nil.
    init?(_ value: Any) {
        switch value {
        case let text as String: self = .text(text)
        case let date as Date: self = .date(seconds: date.timeIntervalSinceReferenceDate)
        // A number of 0 or 1 can be taken for a truth value.
        case let truth as Bool where type(of: value) == Bool.self: self = .truth(truth)
        case let number as Int: self = .number(Int64(number))
        case let number as NSNumber: self = .number(number.int64Value)
        default: return nil
        }
    }

    /// As Foundation has it.
    var value: Any {
        switch self {
        case .text(let text): text
        case .truth(let truth): truth
        case .number(let number): Int(clamping: number)
        case .date(let seconds): Date(timeIntervalSinceReferenceDate: seconds)
        }
    }

    /// Returns the item's present values. Those that cannot be had or kept are left out.
    static func values(of url: URL, _ keys: Set<URLResourceKey>) -> [String: BookmarkValue] {
        guard !keys.isEmpty, let values = try? url.resourceValues(forKeys: keys) else { return [:] }
        let kept = values.allValues.compactMap { key, value in
            keys.contains(key) ? BookmarkValue(value).map { (key.rawValue, $0) } : nil
        }
        return Dictionary(uniqueKeysWithValues: kept.prefix(maxCount))
    }
}

extension BookmarkData {
    /// Returns the kept values for these keys, and name, path and kind, which all data has.
    func values(for keys: some Sequence<URLResourceKey>) -> [String: BookmarkValue] {
        var all = values
        all[URLResourceKey.nameKey.rawValue] =
            all[URLResourceKey.nameKey.rawValue] ?? .text(FilePath.shown(CanonicalPath.lastName(of: path)))
        all[URLResourceKey.pathKey.rawValue] = all[URLResourceKey.pathKey.rawValue] ?? .text(FilePath.shown(path))
        all[URLResourceKey.isDirectoryKey.rawValue] = .truth(isDirectory)
        let wanted = Set(keys.map(\.rawValue))
        return all.filter { wanted.contains($0.key) }
    }
}

extension BinaryWriter {
    mutating func write(_ values: [String: BookmarkValue]) {
        write(UInt16(values.count))
        for (key, value) in values.sorted(by: { $0.key < $1.key }) {
            write(key)
            switch value {
            case .text(let text):
                write(UInt8(1))
                write(text)
            case .truth(let truth):
                write(UInt8(2))
                write(UInt8(truth ? 1 : 0))
            case .number(let number):
                write(UInt8(3))
                write(number)
            case .date(let seconds):
                write(UInt8(4))
                write(seconds.bitPattern)
            }
        }
    }
}

extension BinaryReader {
    mutating func readValues() throws(Flaw) -> [String: BookmarkValue] {
        let count = try read(UInt16.self)
        guard count > 0, count <= BookmarkValue.maxCount else { throw .badFlag }
        var values: [String: BookmarkValue] = [:]
        for _ in 0..<count {
            let key = try readString()
            switch try read(UInt8.self) {
            case 1: values[key] = .text(try readString())
            case 2: values[key] = .truth(try read(UInt8.self) == 1)
            case 3: values[key] = .number(try read(Int64.self))
            case 4: values[key] = .date(seconds: Double(bitPattern: try read(UInt64.self)))
            default: throw .badFlag
            }
        }
        return values
    }
}

extension URL {
    /// Returns the resource values in a bookmark's data, without resolving it.
    ///
    /// All data has the name, the path and whether it is a directory. Other values are in it if it was made with
    /// `includingResourceValuesForKeys`. They describe the item as it was then, and nothing vouches for them.
    ///
    /// - Returns: The values for those of the keys that the data has, or nil for invalid data.
    public static func resourceValues(forKeys keys: Set<URLResourceKey>, fromBookmarkData data: Data) -> BookmarkResourceValues? {
        (try? BookmarkData.decoded(Array(data)).data).map { BookmarkResourceValues($0.values(for: keys)) }
    }
}
