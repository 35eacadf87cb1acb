import Glibc

/// The other end of the session, where its answers come out: each is checked, and says which nodes and files there are now.
final class Answers {
    /// Who waits for an answer, by its number: the kind.
    private(set) var waiting: [UInt64: UInt32] = [:]
    /// The kernel's word that a request was interrupted, which the library answers where it knows no such request (EAGAIN).
    private var interrupts: Set<UInt64> = []
    private var last: (unique: UInt64, opcode: UInt32) = (0, 0)
    private let descriptor: Int32
    private var buffer = [UInt8](repeating: 0, count: 2 << 20)

    init(_ descriptor: Int32) { self.descriptor = descriptor }

    /// FORGET, INTERRUPT, NOTIFY_REPLY and BATCH_FORGET are not answered.
    func expect(_ unique: UInt64, _ opcode: UInt32) {
        last = (unique, opcode)
        if ![2, 36, 41, 42].contains(opcode) { waiting[unique] = opcode }
        if opcode == 36 { interrupts.insert(unique) }
    }

    /// Takes what has come, and notes in `requests` what it gave out.
    func take(_ requests: inout Requests) {
        while true {
            let count = recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            if count < 0 { return }
            note(Array(buffer[..<count]), &requests)
        }
    }

    private func note(_ answer: [UInt8], _ requests: inout Requests) {
        let (length, error, unique) = answer.withUnsafeBytes {
            (
                $0.loadUnaligned(as: UInt32.self), $0.loadUnaligned(fromByteOffset: 4, as: Int32.self),
                $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
            )
        }
        guard answer.count >= 16, length == answer.count else {
            fatalError("an answer of \(answer.count) bytes says that it has \(length)")
        }
        // What the session tells of its own accord.
        if unique == 0 { return }
        if interrupts.remove(unique) != nil { return }
        guard let opcode = waiting.removeValue(forKey: unique) else {
            fatalError("request \(unique) was answered twice, or is of a kind that is not: \(last)")
        }
        // What the kernel takes: fs/fuse/dev.c, fuse_dev_do_write.
        guard error <= 0, error > -512, error == 0 || answer.count == 16 else { fatalError("kind \(opcode) was answered with \(error)") }
        if error == 0 { learn(opcode, Array(answer.dropFirst(16)), &requests) }
    }

    private func learn(_ opcode: UInt32, _ body: [UInt8], _ requests: inout Requests) {
        func number(_ place: Int) -> UInt64 {
            place + 8 <= body.count ? body.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: place, as: UInt64.self) } : 0
        }
        switch opcode {
        case 1, 6, 8, 9, 13: if number(0) != 0 { requests.nodes.append(number(0)) }
        case 14, 27: requests.files.append(number(0))
        case 35, 51:
            requests.nodes.append(number(0))
            // Behind struct fuse_entry_out.
            requests.files.append(number(128))
        default: break
        }
        if requests.nodes.count > 64 { requests.nodes.removeFirst(32) }
        if requests.files.count > 64 { requests.files.removeFirst(32) }
    }
}
