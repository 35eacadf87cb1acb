import Glibc
import GrantSystem

/// Values of the caller's git configuration, for a program that sees nothing else of it: the
/// committer, but no credentials.
enum GitValues {
    /// Returns a git configuration file with those of the values that the caller has. It is empty
    /// if there are none, or no git.
    static func file(of names: [String]) -> [UInt8] {
        var text: [UInt8] = []
        for name in names {
            let parts = name.split(separator: ".")
            guard parts.count == 2, let value = value(of: name) else { continue }
            text += Array("[\(parts[0])]\n\t\(parts[1]) = ".utf8) + quoted(value) + [UInt8(ascii: "\n")]
        }
        return text
    }

    /// Reads a value with `git config --global`, which uses only the caller's own files.
    private static func value(of name: String) -> [UInt8]? {
        guard ProgramSearch.path(of: "git") != nil, let pipe = try? PipePair() else { return nil }
        // The shell redirects standard output to the pipe. The name is an argument, not part of the
        // script.
        let script = "exec git config --global --includes --null --get \"$1\" >&3 2>/dev/null"
        let words = ["sh", "-c", script, "sh", name].map { Array($0.utf8) }
        guard let child = try? ChildProcess.spawn("/bin/sh", arguments: words, inGroup: true, descriptors: [pipe.writing.number]) else {
            return nil
        }
        let reading = pipe.closeWriting()
        var said: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        while said.count < 1 << 16 {
            let count = read(reading.number, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            if count <= 0 { break }
            said += buffer[..<count]
        }
        guard (try? ChildProcess.wait(child)) == 0, said.last == 0 else { return nil }
        return Array(said.dropLast())
    }

    /// Quotes a value with the escapes of git-config(1). Bytes without an escape are dropped.
    private static func quoted(_ value: [UInt8]) -> [UInt8] {
        var text = [UInt8(ascii: "\"")]
        for byte in value {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): text += [UInt8(ascii: "\\"), byte]
            case UInt8(ascii: "\n"): text += Array("\\n".utf8)
            case UInt8(ascii: "\t"): text += Array("\\t".utf8)
            case 0..<0x20, 0x7F: continue
            default: text.append(byte)
            }
        }
        return text + [UInt8(ascii: "\"")]
    }
}
