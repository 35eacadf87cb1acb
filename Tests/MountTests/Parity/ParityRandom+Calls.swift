// Which calls a script makes, and how often.
extension ParityRandom {
    mutating func call() -> String {
        switch below(100) {
        case 0..<17: return descriptorCall()
        case 17..<42: return dataCall()
        case 42..<63: return nameCall()
        case 63..<76: return attributeCall()
        case 76..<85: return xattrCall()
        case 85..<89: return lockCall()
        case 89..<95: return mapCall()
        case 95..<98: return directoryCall()
        default: return processCall()
        }
    }

    private mutating func descriptorCall() -> String {
        switch below(24) {
        case 0..<16: return "open \(slot()) \(path(chance(85) ? "f" : "d")) \(openFlags()) \(mode())"
        case 16: return "open \(slot()) \(path("d")) \(OpenFlag.directory) 0"
        case 17: return "open \(slot()) \(path("d")) \(OpenFlag.temporary | pick([1, 2, 2, 0])) \(mode())"
        case 18: return "reopen \(slot()) \(slot()) \(openFlags() & ~OpenFlag.create)"
        case 19: return "dup \(slot()) \(slot())"
        case 20: return "setfl \(slot()) \(pick([0, OpenFlag.append, OpenFlag.append, OpenFlag.noAccessTime]))"
        case 21: return "getfl \(slot())"
        default: return "close \(slot())"
        }
    }

    private mutating func dataCall() -> String {
        switch below(33) {
        case 0..<5: return "write \(slot()) \(size()) \(below(200))"
        case 5..<9: return "pwrite \(slot()) \(size()) \(farWrite()) \(below(200))"
        case 9..<12: return "read \(slot()) \(size())"
        case 12..<16: return "pread \(slot()) \(size()) \(offset())"
        case 16: return "readv \(slot()) \(size())"
        case 17: return "writev \(slot()) \(size()) \(below(200))"
        case 18: return "pwritev2 \(slot()) \(size()) \(offset()) \(below(200)) \(pick([0x10, 0x10, 2, 4]))"
        case 19..<22:
            return "lseek \(slot()) \(chance(4) ? -1 : below(70_000)) \(pick(traits.hasHoles ? [0, 0, 1, 2, 3, 4] : [0, 0, 1, 2, 1, 2]))"
        case 22..<24: return "ftruncate \(slot()) \(farOffset())"
        case 24: return "truncate \(path("f")) \(farOffset() | 1)"
        case 25..<28:
            let punch = traits.hasPunch ? 3 : 1
            let mode = pick(traits.hasZeroRange ? [0, 0, 1, punch, punch, 16, 17, 2] : [0, 0, 1, punch, punch, 2])
            let (start, length) = (chance(60) ? below(16) * 4096 : offset(), chance(60) ? (1 + below(4)) * 4096 : size())
            return "fallocate \(slot()) \(mode) \(start) \(length)"
        case 28..<30: return "copy \(slot()) \(chance(40) ? -1 : offset()) \(slot()) \(chance(40) ? -1 : offset()) \(size())"
        case 30: return "sendfile \(slot()) \(slot()) \(chance(40) ? -1 : offset()) \(size())"
        case 31: return chance(40) ? "fsync \(slot())" : "fdatasync \(slot())"
        default: return "fadvise \(slot()) \(pick([0, 1, 2, 3, 5]))"
        }
    }

    private mutating func nameCall() -> String {
        switch below(40) {
        case 0..<6: return "mkdir \(path("d")) \(mode())"
        case 6..<12: return "unlink \(path("f"))"
        case 12..<14: return "unlink \(path("l"))"
        case 14..<16: return "rmdir \(path("d"))"
        case 16..<23:
            return "rename \(path("f")) \(path("f")) \(pick(traits.hasExchange ? [0, 0, 0, 1, 2, 2, 4, 3, 8] : [0, 0, 1, 4, 3, 8]))"
        case 23..<25: return "rename \(path("d")) \(path("d")) \(pick(traits.hasExchange ? [0, 0, 1, 2] : [0, 0, 1]))"
        case 25..<30: return "link \(path("f")) \(path("f")) \(pick([0, 0, 0x400]))"
        case 30: return "link f\(slot()):@ \(path("f")) 4096"
        case 31: return "linkproc \(slot()) \(path("f"))"
        case 32..<35: return "symlink \(chance(90) ? path(pick(["d", "f", "l"])) : "%p4000") \(path("l"))"
        case 35: return "readlink \(path("l")) \(pick([4096, 4096, 3, 1]))"
        case 36: return "mknod \(path("p")) \(pick(["0010644", "0140666", "0100640", "0010000", "0012777", "0040755"])) 0"
        case 37: return "mknod \(path("p")) \(pick(["0020666", "0060600"])) 259"
        case 38: return "unlink \(path("p"))"
        default: return "chdir \(chance(40) ? "/." : path("d"))"
        }
    }

    private mutating func attributeCall() -> String {
        switch below(30) {
        case 0..<4: return "stat \(path(pick(["f", "f", "d", "l"]))) \(pick([0, 0x100]))"
        case 4..<6: return "fstat \(slot())"
        case 6: return "statx \(path("f")) \(pick([0, 0x100, 0x2000]))"
        case 7..<10: return "access \(path(pick(["f", "d"]))) \(below(8)) \(pick([0, 0x200, 0x100]))"
        case 10..<15: return "chmod \(path(pick(["f", "f", "d", "p"]))) \(mode())"
        case 15..<17: return "fchmod \(slot()) \(mode())"
        case 17..<21: return "chown \(path(pick(["f", "f", "d", "p"]))) \(owner()) \(group()) \(pick([0, 0x100]))"
        case 21..<23: return "fchown \(slot()) \(owner()) \(group())"
        case 23..<25: return "utimens \(path(pick(["f", "d", "l"]))) \(time()) \(time()) \(pick([0, 0x100]))"
        case 25: return "futimens \(slot()) \(time()) \(time())"
        case 26: return "times \(path("f")) \(time()) \(time())"
        case 27: return "statfs \(path("d"))"
        case 28 where traits.hasHost: return chance(50) ? "hostcap \(name("d"))/\(name("f"))" : "hostcap \(name("f"))"
        default: return "getflags \(slot())"
        }
    }

    private mutating func xattrCall() -> String {
        let name = pick([
            "user.a", "user.a", "user.b", "user.long", "system.posix_acl_access", "system.posix_acl_default", "system.posix_acl_access",
            "trusted.t", "security.s", "user.", "none.x", "system.none",
        ])
        let isACL = name.hasPrefix("system.posix")
        let value = isACL ? ParityACL.random(&self) : pick(["x", "x01", "x0102ff", "x300*61", "x3000*62", "x70000*63"])
        let target = path(pick(["f", "f", "d", "l"]))
        switch below(24) {
        case 0..<7: return "setx \(target) \(name) \(value) \(isACL ? 0 : pick([0, 0, 1, 2]))"
        case 7: return "lsetx \(target) \(name) \(value) 0"
        case 8..<10: return "fsetx \(slot()) \(name) \(value) 0"
        case 10..<14: return "getx \(target) \(name) \(pick([65536, 65536, 0, 1]))"
        case 14: return "lgetx \(target) \(name) 65536"
        case 15: return "fgetx \(slot()) \(name) \(pick([65536, 0, 3]))"
        case 16..<19: return "remx \(target) \(isACL && traits.hasWriteBack ? "user.a" : name)"
        case 19: return "fremx \(slot()) \(isACL && traits.hasWriteBack ? "user.a" : name)"
        case 20..<22: return "listx \(target)"
        case 22: return "llistx \(target)"
        default: return "flistx \(slot())"
        }
    }

    private mutating func lockCall() -> String {
        let range = "\(below(3)) \(below(10) * 100) \(pick([0, 50, 100, 1000, -50])) \(pick([0, 0, 1, 2]))"
        switch below(8) {
        case 0..<3: return "flock \(slot()) \(pick([1, 2, 8]))"
        case 3..<5: return "lock \(slot()) \(range)"
        case 5: return "olock \(slot()) \(range)"
        default: return "getlk \(slot()) \(pick([0, 1])) \(below(10) * 100) 100 0"
        }
    }

    private mutating func mapCall() -> String {
        let map = String(below(4))
        switch below(12) {
        case 0..<4: return "mmap \(map) \(slot()) \((1 + below(8)) * 4096) \(pick([1, 3, 3, 5])) \(pick([1, 1, 2])) \(below(4) * 4096)"
        case 4..<7: return "mread \(map) \(below(32768)) \(size())"
        case 7..<10: return "\(!traits.leavesDirty || chance(40) ? "mwrite" : "mdirty") \(map) \(below(32768)) \(below(9000)) \(below(200))"
        case 10: return "msync \(map) 4"
        default: return "munmap \(map)"
        }
    }

    private mutating func directoryCall() -> String {
        switch below(6) {
        case 0..<2: return "list \(slot()) \(pick([400, 32768]))"
        case 2: return "positions \(slot()) \(below(20))"
        case 3: return "listsome \(slot())"
        case 4: return "fchdir \(slot())"
        default: return "getcwd"
        }
    }

    private mutating func processCall() -> String {
        switch below(8) {
        case 0: return "umask \(pick(["022", "002", "077", "027", "0"]))"
        case 1: return "fsize \(pick([-1, -1, -1, 8192, 40960]))"
        case 2: return "program \(path("f"))"
        case 3: return "exec \(path("f"))"
        case 4: return "child \(slot()) \(below(5000))"
        case 5 where !traits.hasWriteBack: return "setflags \(slot()) \(pick([0, 0x40, 0x80, 0xC0]))"
        case 6: return "getcwd"
        default: return traits.hasHost ? "hostcap \(name("f"))" : "getcwd"
        }
    }
}
