// Feeds bytes to every decoder of foreign data: messages to and from daemons, bookmarks, requests
// to a probe helper and its answers. The first byte selects the decoder.
// A value that can be decoded must give the same bytes when it is encoded, decoded and encoded
// again. All other bytes must be refused without an end of the process.
//
// Built with -DFUZZING it is libFuzzer's program (.ci/fuzz). Otherwise it reads the files and
// directories in its arguments once.
import GrantControl
import Glibc
import GrantAdministration
import GrantModel

func tryBytes(_ bytes: [UInt8]) {
    guard let kind = bytes.first else { return }
    let rest = Array(bytes.dropFirst())
    switch kind % 6 {
    case 0:
        tryMessage(ControlRequest.self, rest)
        tryMessage(HandoverMessage.self, rest)
    case 1: tryMessage(ControlReply.self, rest)
    case 2:
        if let bookmark = try? Bookmark(encoded: rest) {
            check((try? Bookmark(encoded: bookmark.encoded()))?.encoded(), bookmark.encoded())
        }
    case 3: tryMessage(SessionRequest.self, rest)
    case 4: tryMessage(SessionNews.self, rest)
    default:
        tryChoice(ProbeRequest.self, rest)
        tryChoice(ProbeAnswer.self, rest)
    }
}

func tryMessage<Message: WireMessage>(_: Message.Type, _ bytes: [UInt8]) {
    if let message = try? Message.decode(bytes) { check((try? Message.decode(message.encoded))?.encoded, message.encoded) }
}

/// Tries a format that has no leading version and may leave bytes unused.
func tryChoice<Choice: WireChoice>(_: Choice.Type, _ bytes: [UInt8]) {
    guard let first = readAndWritten(Choice.self, bytes) else { return }
    check(readAndWritten(Choice.self, first), first)
}

func readAndWritten<Choice: WireChoice>(_: Choice.Type, _ bytes: [UInt8]) -> [UInt8]? {
    var reader = BinaryReader(bytes[...])
    guard let value = try? Choice.read(from: &reader) else { return nil }
    var writer = BinaryWriter()
    value.write(to: &writer)
    return writer.bytes
}

func check(_ again: [UInt8]?, _ value: [UInt8]) {
    precondition(again == value, "written and read again it is another")
}

#if FUZZING
    @_silgen_name("LLVMFuzzerRunDriver")
    func runDriver(
        _ count: UnsafeMutablePointer<Int32>, _ words: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>>,
        _ body: @convention(c) (UnsafePointer<UInt8>?, Int) -> Int32
    ) -> Int32

    var count = CommandLine.argc
    var words = CommandLine.unsafeArgv
    exit(
        runDriver(&count, &words) { bytes, length in
            tryBytes(Array(UnsafeBufferPointer(start: bytes, count: length)))
            return 0
        })
#else
    func tryFile(_ path: String) {
        guard let file = fopen(path, "r") else { return }
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 1 << 20)
        tryBytes(Array(bytes[..<fread(&bytes, 1, bytes.count, file)]))
    }

    var tried = 0
    for path in CommandLine.arguments.dropFirst() {
        guard let directory = opendir(path) else { fatalError("no such directory: \(path)") }
        while let entry = readdir(directory) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                String(cString: UnsafeRawPointer($0).assumingMemoryBound(to: CChar.self))
            }
            if name.hasPrefix(".") { continue }
            tryFile(path + "/" + name)
            tried += 1
        }
        closedir(directory)
    }
    print(tried)
#endif
