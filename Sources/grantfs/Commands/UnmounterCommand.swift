import GrantAdministration
import GrantModel
import Glibc
import LinuxFS

/// `grantfs unmounter`: the process that unmounts for a user's daemon, which may start no program itself. It waits on descriptor 3 for a
/// byte, and ends without doing anything when there is an end instead: a mount whose daemon has died stays, and says so to whoever looks.
enum UnmounterCommand {
    static let declaration = CommandDeclaration(
        "unmounter", "Unmounts when a daemon says so on descriptor 3.",
        operands: [OperandDeclaration("MOUNTPOINT"), OperandDeclaration("MOUNT")],
        isHidden: true, run: run)

    private static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        ProcessName.set("grantfs-unmount")
        // Nobody's pipe stays open for its sake.
        let null = open("/dev/null", O_RDWR | O_CLOEXEC)
        if null >= 0 { dup2(null, Terminal.standardError) }
        var byte: UInt8 = 0
        while true {
            let count = read(3, &byte, 1)
            if count > 0 { break }
            if count == 0 || errno != EINTR { return 0 }
        }
        guard let mount = MountIdentity(words: arguments.operands[1]) else { return 2 }
        // Whatever stands at the path by now.
        do throws(Errno) {
            try Mountpoint(canonical: arguments.operands[0]).unmount(mount, lazy: true)
        } catch {
            return 1
        }
        return 0
    }
}

/// The daemon's end of it.
final class Unmounter {
    private let writing: FileDescriptor
    private let process: Int32

    /// `mount`: what is to be unmounted, wherever `mountpoint` leads by then.
    init(mountpoint: [UInt8], mount: MountIdentity) throws(Errno) {
        let pipe = try PipePair()
        process = try ChildProcess.spawn(
            "/proc/self/exe", arguments: ["grantfs", "unmounter", "--"].map { Array($0.utf8) } + [mountpoint, mount.words],
            detached: true,
            descriptors: [pipe.reading.number])
        writing = pipe.closeReading()
    }

    /// Waits until it has unmounted.
    func unmount() throws(GrantError) {
        do throws(Errno) {
            _ = write(writing.number, [1], 1)
            if try ChildProcess.wait(process) == 0 { return }
            throw Errno(EBUSY)
        } catch {
            throw GrantError(.mountFailed, "the view cannot be unmounted", cause: error.description, advice: "fusermount3 -uz does it")
        }
    }
}

extension MountIdentity {
    /// As one word of a command line.
    fileprivate var words: [UInt8] { Array("\(device.major):\(device.minor):\(id):\(number ?? 0)".utf8) }

    fileprivate init?(words: [UInt8]) {
        let parts = String(decoding: words, as: UTF8.self).split(separator: ":")
        guard parts.count == 4, let major = UInt32(parts[0]), let minor = UInt32(parts[1]), let id = UInt64(parts[2]),
            let number = UInt64(parts[3])
        else { return nil }
        self.init(device: DeviceNumber(major: major, minor: minor), id: id, number: number == 0 ? nil : number)
    }
}
