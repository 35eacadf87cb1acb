import Glibc
import GrantCommandSupport
import GrantModel
import GrantSystem

/// The record of a volume.
struct VolumeRecord {
    let name: String
    /// As the engine gave them.
    let options: [(name: String, value: String)]
    /// ISO 8601.
    let created: String
    /// Whether all that the options ask for was done.
    var isMade = false
    /// The engine's ids of those that use its mount, since the boot.
    var users: Set<String> = []

    /// The view that it shows, and whether the view ends with it. The other options matter only when it is made: another version may
    /// have had others.
    var view: (name: String, isOwn: Bool) { options.last { $0.name == "view" }.map { ($0.value, false) } ?? (name, true) }

    /// The container that it was made for, by `oci-hook`.
    var container: String? { options.last { $0.name == "container" }?.value }

    fileprivate var json: JSON {
        .object([
            ("name", .string(name)), ("options", .object(options.map { ($0.name, .string($0.value)) })), ("created", .string(created)),
            ("isMade", .bool(isMade)), ("boot", .string(Boot.id)), ("users", .array(users.sorted().map { .string($0) })),
        ])
    }

    init(name: String, options: [(name: String, value: String)], created: String) {
        (self.name, self.options, self.created) = (name, options, created)
    }

    fileprivate init?(_ text: [UInt8]) {
        guard let json = JSONReader()?.read(text), let name = json.member("name")?.stringValue,
            case .object(let options) = json.member("options"), case .bool(let isMade) = json.member("isMade"),
            let created = json.member("created")?.stringValue, let boot = json.member("boot")?.stringValue,
            case .array(let users) = json.member("users")
        else { return nil }
        var words: [(name: String, value: String)] = []
        for (name, value) in options {
            guard let value = value.stringValue else { return nil }
            words.append((name, value))
        }
        self.init(name: name, options: words, created: created)
        self.isMade = isMade
        // Mounts end with the machine.
        if boot == Boot.id { self.users = Set(users.compactMap(\.stringValue)) }
    }
}

/// The records of volumes, a file each, in a directory of the store.
struct VolumeRecords {
    private let directory: String
    private static let ending = ".json"

    init(store: String) throws(GrantError) {
        directory = store + "/volumes"
        if mkdir(directory, 0o700) != 0, errno != EEXIST { throw VolumeRecords.failure(directory, "made", Errno(errno)) }
    }

    /// Letters, digits, dots, dashes and underscores, as engines demand, so that it is also a name of a file.
    static func isName(_ name: String) -> Bool {
        guard let first = name.utf8.first, name.utf8.count <= 128, isLetterOrDigit(first) else { return false }
        return name.utf8.allSatisfy { isLetterOrDigit($0) || "_.-".utf8.contains($0) }
    }

    private static func isLetterOrDigit(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
    }

    /// All volumes, also those whose record cannot be read.
    func names() throws(GrantError) -> [String] {
        do throws(Errno) {
            return try DirectoryNames.of(directory.utf8).map { String(decoding: $0, as: UTF8.self) }
                .filter { $0.hasSuffix(VolumeRecords.ending) }.map { String($0.dropLast(VolumeRecords.ending.count)) }
                .filter(VolumeRecords.isName).sorted()
        } catch {
            throw VolumeRecords.failure(directory, "read", error)
        }
    }

    /// Nil if there is none.
    func find(_ name: String) throws(GrantError) -> VolumeRecord? {
        guard VolumeRecords.isName(name) else { return nil }
        let text: [UInt8]
        do throws(Errno) {
            text = try File.contents(of: file(name).utf8)
        } catch {
            if error == Errno(ENOENT) { return nil }
            throw VolumeRecords.failure(file(name), "read", error)
        }
        if let record = VolumeRecord(text), record.name == name { return record }
        throw GrantError(
            .storeUnavailable, "the record of the volume “\(name)” is damaged", cause: file(name),
            advice: "remove the volume: the grants of the view “\(name)” stay")
    }

    /// Whether there is a record that can be read and makes no sense.
    func isDamaged(_ name: String) -> Bool {
        guard let text = try? File.contents(of: file(name).utf8) else { return false }
        return VolumeRecord(text)?.name != name
    }

    func keep(_ record: VolumeRecord) throws(GrantError) {
        do throws(Errno) {
            try File.replace(file(record.name), with: Array((record.json.text + "\n").utf8))
        } catch {
            throw VolumeRecords.failure(file(record.name), "written", error)
        }
    }

    func remove(_ name: String) throws(GrantError) {
        if unlink(file(name)) != 0, errno != ENOENT { throw VolumeRecords.failure(file(name), "removed", Errno(errno)) }
        try? File.keepNames(in: directory)
    }

    private func file(_ name: String) -> String { "\(directory)/\(name)\(VolumeRecords.ending)" }

    private static func failure(_ path: String, _ verb: String, _ error: Errno) -> GrantError {
        GrantError(.storeUnavailable, "\(path) cannot be \(verb)", cause: error.description)
    }
}
