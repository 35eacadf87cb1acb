import Glibc

/// Makes requests. Most of them concern existing nodes and files, in the form of their opcode, with
/// numbers at their limits.
struct Requests {
    /// The nodes that replies have returned.
    var nodes: [UInt64] = []
    var files: [UInt64] = []
    private var last: UInt64 = 0

    private static let names: [[UInt8]] =
        ["a", "b", "c", "file", "directory", "link", "pipe", ".", "..", "grant", "user.x", "security.capability"].map { Array($0.utf8) } + [
            [], Array("system.posix_acl_access".utf8), Array("a/b".utf8), [0xFF, 0xFE], [0x0A], [UInt8](repeating: 0x6E, count: 255),
            [UInt8](repeating: 0x6E, count: 256), [UInt8](repeating: 0x6E, count: 4096),
        ]

    private static let kinds: [UInt32] = [
        1, 1, 1, 2, 3, 4, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25, 27, 28, 29, 30, 31, 32, 33, 34, 35,
        35, 36, 37, 39,
        40, 41, 42, 43, 44, 45, 46, 46, 47, 48, 50, 51, 52,
    ]

    mutating func begin(at number: UInt64) { last = number }

    /// A request number that was not used before.
    mutating func number() -> UInt64 {
        last += 2
        return last
    }

    /// The next request: its number, its opcode and its bytes.
    mutating func next(_ choices: inout Choices) -> (unique: UInt64, opcode: UInt32, bytes: [UInt8]) {
        let unique = number()
        let opcode = choices.oneIn(32) ? UInt32(truncatingIfNeeded: choices.number()) : choices.of(Self.kinds)
        // INIT begins a session and DESTROY ends it. Both are sent once.
        let kind = opcode == 26 || opcode == 38 ? 3 : opcode
        let uid: UInt32 = choices.oneIn(4) ? choices.of([1, 1000, 65_534, .max - 1, .max]) : 0
        let pid = choices.oneIn(8) ? UInt32(truncatingIfNeeded: choices.number()) : UInt32(getpid())
        var message = Writing(opcode: kind, unique: unique, node: node(&choices), uid: uid, gid: uid, pid: pid)
        fill(&message, kind, &choices)
        let cut = choices.oneIn(24) ? 40 + choices.below(200) : .max
        return (unique, kind, message.finished(cut: cut))
    }

    private func node(_ choices: inout Choices) -> UInt64 {
        if choices.oneIn(16) { return choices.number() }
        if nodes.isEmpty || choices.oneIn(16) { return 1 }
        return choices.of(nodes)
    }

    private func file(_ choices: inout Choices) -> UInt64 { files.isEmpty || choices.oneIn(16) ? choices.number() : choices.of(files) }

    /// The number of lookups to forget. Later requests cannot use a forgotten node, so most nodes
    /// remain.
    private func lookups(_ choices: inout Choices) -> UInt64 { choices.oneIn(16) ? choices.of([2, 100, .max]) : choices.of([0, 0, 1]) }

    private func name(_ choices: inout Choices) -> [UInt8] { choices.of(Self.names) }

    private func word(_ choices: inout Choices) -> UInt32 { UInt32(truncatingIfNeeded: choices.number()) }

    private func flags(_ choices: inout Choices) -> UInt32 {
        if choices.oneIn(8) { return UInt32(truncatingIfNeeded: choices.whole()) }
        // O_APPEND, O_TRUNC, O_EXCL, O_DIRECT, O_TMPFILE
        return UInt32(choices.below(3)) | choices.of([0, 0, 0, 0x400, 0x200, 0x80, 0x4000, 0x41_0000])
    }

    // MARK: the body of each opcode

    private func fill(_ message: inout Writing, _ kind: UInt32, _ choices: inout Choices) {
        switch kind {
        case 1, 10, 11, 24: message.put(name: name(&choices))
        case 2: message.put(lookups(&choices))
        case 3, 52: fillAttributes(&message, &choices)
        case 4: fillChanges(&message, &choices)
        case 6:
            message.put(name: name(&choices))
            message.put(name: name(&choices))
        case 8:
            message.put(modes(&choices))
            message.put(word(&choices))
            message.put(word(&choices))
            message.put(0 as UInt32)
            message.put(name: name(&choices))
        case 9:
            message.put(modes(&choices))
            message.put(word(&choices))
            message.put(name: name(&choices))
        case 12, 45:
            message.put(node(&choices))
            if kind == 45 { message.put(UInt64(choices.below(8))) }
            message.put(name: name(&choices))
            message.put(name: name(&choices))
        case 13:
            message.put(node(&choices))
            message.put(name: name(&choices))
        case 14, 27:
            message.put(flags(&choices))
            message.put(0 as UInt32)
        case 35, 51:
            message.put(kind == 51 ? flags(&choices) | 0x41_0002 : flags(&choices))
            message.put(modes(&choices))
            message.put(word(&choices))
            message.put(0 as UInt32)
            message.put(name: name(&choices))
        default: fillFile(&message, kind, &choices)
        }
    }

    private func modes(_ choices: inout Choices) -> UInt32 {
        choices.oneIn(4) ? word(&choices) : choices.of([0o100644, 0o100755, 0o104755, 0o102644, 0o040755, 0o010644, 0o140644, 0o020600])
    }

    private func fillAttributes(_ message: inout Writing, _ choices: inout Choices) {
        message.put(UInt32(choices.below(2)))
        message.put(0 as UInt32)
        message.put(file(&choices))
        message.put(0 as UInt32)
        message.put(word(&choices))
    }

    private func fillChanges(_ message: inout Writing, _ choices: inout Choices) {
        message.put(choices.oneIn(4) ? word(&choices) : 1 << UInt32(choices.below(12)))
        message.put(0 as UInt32)
        message.put(file(&choices))
        for _ in 0..<5 { message.put(choices.number()) }
        for _ in 0..<3 { message.put(word(&choices)) }
        message.put(modes(&choices))
        message.put(0 as UInt32)
        message.put(choices.oneIn(2) ? 0 : word(&choices))
        message.put(choices.oneIn(2) ? 0 : word(&choices))
        message.put(0 as UInt32)
    }

    private func fillFile(_ message: inout Writing, _ kind: UInt32, _ choices: inout Choices) {
        switch kind {
        case 15, 28, 44:
            message.put(file(&choices))
            message.put(choices.number())
            message.put(word(&choices) % (96 << 10))
            message.put(UInt32(choices.below(8)))
            message.put(choices.number())
            message.put(flags(&choices))
            message.put(0 as UInt32)
        case 16:
            let size = choices.of([0, 1, 100, 4096, 5000])
            message.put(file(&choices))
            message.put(choices.number())
            message.put(choices.oneIn(8) ? word(&choices) : UInt32(size))
            message.put(UInt32(choices.below(8)))
            message.put(choices.number())
            message.put(flags(&choices))
            message.put(0 as UInt32)
            message.put(bytes: [UInt8](repeating: 0x78, count: size))
        case 18, 29:
            message.put(file(&choices))
            message.put(flags(&choices))
            message.put(UInt32(choices.below(4)))
            message.put(choices.number())
        case 20, 25, 30:
            message.put(file(&choices))
            message.put(UInt32(choices.below(2)))
            message.put(0 as UInt32)
            message.put(choices.number())
        case 21:
            let size = choices.of([0, 1, 8, 28, 44, 1000, 65_535])
            message.put(choices.oneIn(8) ? word(&choices) : UInt32(size))
            message.put(word(&choices))
            message.put(name: choices.oneIn(2) ? name(&choices) : Array("user.x".utf8))
            message.put(bytes: [UInt8](repeating: choices.byte(), count: size))
        case 22, 23:
            message.put(word(&choices))
            message.put(0 as UInt32)
            if kind == 22 { message.put(name: choices.oneIn(2) ? name(&choices) : Array("user.x".utf8)) }
        case 31, 32, 33: fillLock(&message, &choices)
        case 36: message.put(last &- 2 &* UInt64(choices.below(8)))
        case 39: fillControl(&message, &choices)
        case 42:
            let count = choices.below(4)
            message.put(choices.oneIn(8) ? word(&choices) : UInt32(count))
            message.put(0 as UInt32)
            for _ in 0..<count {
                message.put(node(&choices))
                message.put(lookups(&choices))
            }
        case 43:
            message.put(file(&choices))
            message.put(choices.number())
            message.put(choices.number())
            message.put(choices.oneIn(4) ? word(&choices) : UInt32(choices.below(128)))
            message.put(0 as UInt32)
        case 46:
            message.put(file(&choices))
            message.put(choices.number())
            message.put(UInt32(choices.below(6)))
            message.put(0 as UInt32)
        case 47:
            message.put(file(&choices))
            message.put(choices.number())
            message.put(node(&choices))
            message.put(file(&choices))
            message.put(choices.number())
            message.put(choices.number())
            message.put(choices.oneIn(4) ? choices.number() : 0)
        default: for _ in 0..<choices.below(10) { message.put(choices.number()) }
        }
    }

    private func fillLock(_ message: inout Writing, _ choices: inout Choices) {
        message.put(file(&choices))
        message.put(UInt64(choices.below(4)))
        message.put(choices.number())
        message.put(choices.number())
        message.put(choices.oneIn(8) ? word(&choices) : UInt32(choices.below(3)))
        message.put(UInt32(getpid()))
        // FUSE_LK_FLOCK
        message.put(UInt32(choices.below(2)))
        message.put(0 as UInt32)
    }

    private func fillControl(_ message: inout Writing, _ choices: inout Choices) {
        // FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR
        let command = choices.oneIn(8) ? word(&choices) : choices.of([0x8008_6601, 0x4008_6602, 0x801C_581F, 0x401C_5820])
        let size: UInt32 = command & 0xFF00 == 0x5800 ? 28 : 4
        message.put(file(&choices))
        message.put(UInt32(choices.below(32)))
        message.put(command)
        message.put(choices.oneIn(8) ? choices.number() : 0)
        message.put(choices.oneIn(8) ? word(&choices) : size)
        message.put(choices.oneIn(8) ? word(&choices) : size)
        // Never sends flags that make a file immutable, because such a file could not be removed.
        message.put(bytes: [UInt8](repeating: 0, count: 28))
    }
}
