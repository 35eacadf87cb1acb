import Foundation
import TestSupport

/// A script for ParityProbe: one call a line, made from a seed alone, so that the same seed is the same script everywhere.
struct ParityScript: CustomStringConvertible, Sendable {
    var lines: [String]

    init(lines: [String]) { self.lines = lines }
    /// A script in its written form: a line each, without blank lines and without text after a `#`.
    init(_ text: String) {
        lines = text.split(separator: "\n").map { $0.prefix { $0 != "#" }.trimmingCharacters(in: .whitespaces) }.filter { !$0.isEmpty }
    }

    var description: String { lines.joined(separator: "\n") }

    /// Typical directories: for all users, of a group (set-gid), sticky, with a default ACL.
    static let preparation = [
        "0 mkdir d0 0777", "0 chmod d0 0777", "0 mkdir d1 0777", "0 chown d1 0 2002 0", "0 chmod d1 02777", "0 mkdir d2 0777",
        "0 chmod d2 01777", "0 mkdir d3 0777", "0 chown d3 1001 1001 0",
        "0 setx d3 system.posix_acl_default \(ParityACL.example) 0",
    ]

    /// `count` calls by three users, with a look at the whole tree every fifty.
    static func random(seed: UInt64, count: Int, _ traits: ParityTraits) -> ParityScript {
        var traits = traits
        traits.leavesDirty = seed % 3 == 0
        var random = ParityRandom(seed: seed, traits: traits)
        let snapshot = traits.leavesDirty ? "0 snapdata" : "0 snap"
        var lines = preparation
        for number in 1...count {
            lines.append("\(random.below(3)) \(random.call())")
            if number % 50 == 0 { lines.append(snapshot) }
        }
        return ParityScript(lines: lines + [snapshot, "0 hostsnap"])
    }
}

/// What a script may ask of where it is run.
struct ParityTraits: Sendable {
    /// Changes on the host, which the mount must take in: not under `cache=exclusive`.
    var hasHost = true
    /// FALLOC_FL_ZERO_RANGE. Where it fails, a mount has changed the times before it found out (fs/fuse/file.c, fuse_file_fallocate).
    var hasZeroRange = true
    /// FALLOC_FL_PUNCH_HOLE. btrfs, and ext4 of Linux 6.1 (6.12 does) behind the end of a file, change nothing if there is nothing to
    /// punch. A mount has changed times and set-id bits by then.
    var hasPunch = true
    /// SEEK_DATA and SEEK_HOLE. ext4 and xfs count cached pages of allocated, unwritten space. With write-back they may have been read
    /// before the file reached that far. tmpfs makes data of holes that a mapping reads.
    var hasHoles = true
    /// RENAME_EXCHANGE. xfs keeps the ctime of files. With write-back the kernel changes it by
    /// itself (fs/fuse/dir.c, fuse_rename_common).
    var hasExchange = true
    /// With write-back the kernel has times and sizes of its own (docs/conformance.md): no writes behind what the filesystem takes, no flags, no
    /// removing of ACLs.
    var hasWriteBack = false
    /// Stores into shared mappings without msync(2). Then times are not compared.
    var leavesDirty = false
}

/// The choices that make up a call.
struct ParityRandom {
    private var random: SplitMix
    let traits: ParityTraits

    /// Seeds next to each other would give the same numbers, one place apart.
    init(seed: UInt64, traits: ParityTraits) {
        var first = SplitMix(seed: seed)
        random = SplitMix(seed: first.next())
        self.traits = traits
    }

    mutating func below(_ limit: Int) -> Int { Int(random.next() >> 11) % limit }
    mutating func chance(_ percent: Int) -> Bool { below(100) < percent }
    mutating func pick<Element>(_ choices: [Element]) -> Element { choices[below(choices.count)] }
    mutating func pick(_ choices: String...) -> String { pick(choices) }

    // MARK: what calls are about

    mutating func slot() -> String { String(below(chance(80) ? 4 : 8)) }
    mutating func name(_ kind: Character) -> String { "\(kind)\(below(kind == "f" ? 5 : 4))" }

    /// A path of one to three names, sometimes from a descriptor, sometimes one that no filesystem takes.
    mutating func path(_ wanted: Character) -> String {
        switch below(200) {
        case 0: return "%255"
        case 1: return "%256"
        case 2: return "%p4095"
        case 3: return "%p4096"
        case 4: return name(wanted) + "/" + name("f")
        case 5: return name(wanted) + "/"
        case 6: return "l0/../" + name(wanted)
        case 7: return "/" + name(wanted)
        case 8: return "."
        default: break
        }
        let kind: Character = chance(90) ? wanted : pick(["d", "f", "l", "p"])
        var path = name(kind)
        while chance(42), path.utf8.count < 9 { path = name(chance(93) ? "d" : "l") + "/" + path }
        return chance(6) ? "f\(below(8)):\(path)" : path
    }

    /// Beyond the limit of every filesystem. Calls that use the kernel's own limit get none of
    /// these, because it differs for FUSE (docs/conformance.md).
    mutating func farWrite() -> Int { traits.hasWriteBack ? offset() : farOffset() }
    mutating func farOffset() -> Int { chance(95) ? offset() : pick([Int.max, Int.max - 4095, 1 << 44]) }
    /// Around the ends of pages and blocks, rarely far out.
    mutating func offset() -> Int {
        switch below(20) {
        case 0: return pick([-1, -1, 1 << 32, (1 << 32) + 4097, 1 << 40])
        case 1...9: return below(17) * 4096 + pick([-1, 0, 0, 1])
        default: return below(70_000)
        }
    }
    mutating func size() -> Int {
        switch below(10) {
        case 0: return 0
        case 1...4: return below(600)
        case 5...7: return (1 + below(4)) * 4096
        default: return below(70_000)
        }
    }
    mutating func mode() -> String {
        pick([
            "0644", "0666", "0600", "0755", "0777", "0700", "0640", "0000", "0444", "04755", "02755", "02745", "06777", "01777", "02770",
            "0770",
        ])
    }
    mutating func owner() -> String { pick(["-1", "0", "1001", "1002", "1001", "-1"]) }
    mutating func group() -> String { pick(["-1", "0", "1001", "1002", "2001", "2002", "2002"]) }
    mutating func time() -> String { pick(["now", "omit", "1000000000.123456789", "0.1", "-5.0", "1500000000.999999999", "omit", "now"]) }

    mutating func openFlags() -> Int {
        let flag = OpenFlag.self
        var flags = pick([0, 0, 1, 2, 2, 2, 1])
        if chance(45) { flags |= flag.create }
        if chance(8) { flags |= flag.exclusive }
        if chance(12) { flags |= flag.truncate }
        if chance(15) { flags |= flag.append }
        if chance(6) { flags |= flag.directory }
        if chance(8) { flags |= flag.noFollow }
        if chance(6) { flags |= flag.path }
        if chance(4) { flags |= flag.sync }
        if chance(3) { flags |= flag.dataSync }
        if chance(5), flags & flag.append == 0 { flags |= flag.direct }
        if chance(3) { flags |= flag.noAccessTime }
        return flags
    }
}

/// open(2)'s flags on x86_64 and arm64, if both agree. ParityProbe takes numbers.
enum OpenFlag {
    static let create = 0o100, exclusive = 0o200, truncate = 0o1000, append = 0o2000, dataSync = 0o10000, sync = 0o4010000
    #if arch(arm64)
        static let directory = 0o40000, noFollow = 0o100000, direct = 0o200000
    #else
        static let direct = 0o40000, directory = 0o200000, noFollow = 0o400000
    #endif
    static let noAccessTime = 0o1000000, path = 0o10000000
    static let temporary = 0o20000000 | directory
}

/// POSIX ACLs as the kernel takes them (linux/posix_acl_xattr.h): a version, then entries of tag, permissions, id.
enum ParityACL {
    static let (owner, user, owningGroup, group, mask, other) = (1, 2, 4, 8, 16, 32)

    static func encoded(_ entries: [(tag: Int, permissions: Int, id: Int)]) -> String {
        var bytes: [UInt8] = [2, 0, 0, 0]
        for entry in entries {
            bytes += [UInt8(entry.tag), 0, UInt8(entry.permissions), 0]
            bytes += (0..<4).map { UInt8(truncatingIfNeeded: entry.id >> ($0 * 8)) }
        }
        return "x" + bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    static let example = encoded([(owner, 7, -1), (user, 6, 1002), (owningGroup, 5, -1), (group, 7, 2002), (mask, 7, -1), (other, 0, -1)])

    static func random(_ random: inout ParityRandom) -> String {
        var entries = [(owner, random.below(8), -1)]
        if random.chance(60) { entries.append((user, random.below(8), random.pick([1001, 1002]))) }
        entries.append((owningGroup, random.below(8), -1))
        if random.chance(50) { entries.append((group, random.below(8), random.pick([2001, 2002]))) }
        // An ACL that lacks a required mask is invalid.
        if random.chance(entries.count > 2 ? 93 : 30) { entries.append((mask, random.below(8), -1)) }
        entries.append((other, random.below(8), -1))
        return encoded(entries)
    }
}
