import Glibc

/// The other end of the session, where its replies come out. It checks each reply and records the
/// nodes and files that exist.
final class Answers {
    /// The opcode of each request that waits for a reply, by its number.
    private(set) var waiting: [UInt64: UInt32] = [:]
    /// The numbers of INTERRUPT requests. The library answers one with EAGAIN if it has no record
    /// of the interrupted request.
    private var interrupts: Set<UInt64> = []
    private var last: (unique: UInt64, opcode: UInt32) = (0, 0)
    private let descriptor: Int32
    private var buffer = [UInt8](repeating: 0, count: 2 << 20)

    init(_ descriptor: Int32) { self.descriptor = descriptor }

    /// Records a request. FORGET, INTERRUPT, NOTIFY_REPLY and BATCH_FORGET have no reply.
    func expect(_ unique: UInt64, _ opcode: UInt32) {
        last = (unique, opcode)
        if ![2, 36, 41, 42].contains(opcode) { waiting[unique] = opcode }
        if opcode == 36 { interrupts.insert(unique) }
    }

    /// Reads the replies that have arrived, and records their nodes and files in `requests`.
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
        // A notification of the session.
        if unique == 0 { return }
        if interrupts.remove(unique) != nil { return }
        guard let opcode = waiting.removeValue(forKey: unique) else {
            fatalError("request \(unique) was answered twice, or is of a kind that is not: \(last)")
        }
        // The replies that the kernel accepts: fs/fuse/dev.c, fuse_dev_do_write.
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
            // After struct fuse_entry_out.
            requests.files.append(number(128))
        default: break
        }
        if requests.nodes.count > 64 { requests.nodes.removeFirst(32) }
        if requests.files.count > 64 { requests.files.removeFirst(32) }
    }
}
