import Foundation
import Glibc
import TestSupport
import Testing

/// A program in a sandbox that has a file of the granted directory open and mapped, and writes to it when it is told.
final class SandboxHolder {
    /// Ways to write to the file once the directory was taken back: rows of the table.
    enum Way: String, CaseIterable {
        case path = "after it was taken back: a file in it, by its path, for writing"
        case descriptor = "after it was taken back: a file that was open"
        case mapping = "after it was taken back: a file that was mapped"
    }

    private let program: Child
    private let source: String
    private var turns = 0

    private static let script = """
        import mmap, os, sys
        path = sys.argv[1] + '/held'
        held = open(path, 'r+b', buffering=0)
        mapping = mmap.mmap(held.fileno(), 0)
        def by_path(text):
            with open(path, 'r+b', buffering=0) as file: file.write(text)
        def by_descriptor(text): os.pwrite(held.fileno(), text, 0)
        def by_mapping(text):
            mapping[0:len(text)] = text
            mapping.flush()
        print('ready', flush=True)
        for line in sys.stdin:
            way, text = line.split()
            # Whoever touches a mapping that is cut gets SIGBUS.
            if os.fork() == 0:
                try: {'path': by_path, 'descriptor': by_descriptor, 'mapping': by_mapping}[way](text.encode())
                except OSError: pass
                os._exit(0)
            os.wait()
            print('tried', flush=True)
        """

    /// Starts it. `sandbox` are the words in front of the program.
    init(_ sandbox: [String], source: String, environment: [String: String]) throws {
        self.source = source
        try "nothing yet\n".write(toFile: source + "/held", atomically: false, encoding: .utf8)
        program = try Child(sandbox + ["python3", "-c", Self.script, source], environment: environment)
        try program.expect("ready")
    }

    /// Lets it write in this way. Returns whether the write is in the file outside.
    func writes(_ way: Way) throws -> Bool {
        turns += 1
        let text = "turn\(turns)"
        program.send("\(way) \(text)")
        try program.expect("tried")
        return try String(contentsOfFile: source + "/held", encoding: .utf8).hasPrefix(text)
    }

    /// Detaches the directory from outside, in the usual way for a bind mount: umount(8) in the
    /// program's mount namespace.
    func unmountOutside() throws {
        let all = ((try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []).compactMap { pid_t($0) }
        let inside = try #require(
            all.first { pid in
                let last = Processes.kernelText("/proc/\(pid)/cmdline").split(separator: "\0").last
                return Processes.name(of: pid).hasPrefix("python") && last.map(String.init) == source
            })
        try Command.run(["nsenter", "--target", "\(inside)", "--mount", "--pid", "umount", "--lazy", source], within: 30).orThrow()
    }

    func end() {
        program.closeInput()
        #expect(program.wait(within: 30) != nil)
    }
}
