import CGrantPortal
import Glibc
import GrantSystem

/// What somebody on the bus answered instead of a result, or why nobody did (`name` is empty then).
struct BusError: Error {
    let name: String
    let text: String
    /// There is an answer, and it cannot be read.
    var isUnreadable = false

    /// Nobody has the service's name, and nobody can be started who would take it.
    var isAbsence: Bool {
        let names = [
            "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
            "org.freedesktop.systemd1.NoSuchUnit", "org.freedesktop.systemd1.UnitMasked",
        ]
        return names.contains(name) || name.hasPrefix("org.freedesktop.DBus.Error.Spawn")
    }
}

/// Calls others on the session bus, one call at a time, by a connection of its own.
///
/// Locking: calls wait for each other, and each for its answer.
final class BusClient: Sendable {
    /// A signal of a service that is called, which is heard in order with its answers: when a call has returned, all that was said before the answer has been acted upon, and
    /// nothing of what was said after it.
    final class Signal: Sendable {
        let (service, path, interface, member): (String, String, String, String)
        /// With the values that it carries, as far as they can be read; it calls nobody.
        let act: @Sendable ([BusValue]) -> Void
        /// Whose answers came last, and before those: the connections of the service. Nobody else is listened to as if it were that.
        fileprivate let senders = Lock<[String]>([])

        init(service: String, path: String, interface: String, member: String, act: @escaping @Sendable ([BusValue]) -> Void) {
            (self.service, self.path, self.interface, self.member, self.act) = (service, path, interface, member, act)
        }

        fileprivate func hasAnswered(_ sender: String) {
            senders.withLock { if $0.last != sender { $0 = $0.suffix(1) + [sender] } }
        }
    }

    private struct Connection: @unchecked Sendable {
        // Safe to share: used by whoever has the lock.
        var bus: OpaquePointer?
    }

    /// Those that are asked are trusted, and the lists of the permission store are long.
    private static let largest = BusLoad(calls: 1, values: .max, bytes: .max, descriptors: 16)

    private let connection = Lock(Connection())
    private let signal: Signal?

    init(hears signal: Signal? = nil) { self.signal = signal }

    deinit { connection.withLock { if let bus = $0.bus { cportal_close(bus) } } }

    /// The results. It connects when it is not connected, and waits so many seconds for the answer.
    func call(
        _ service: String, _ path: String, _ interface: String, _ member: String, _ types: String = "", _ arguments: [BusValue] = [],
        seconds: UInt64 = 10
    ) throws(BusError) -> [BusValue] {
        try connection.withLock { (connection: inout Connection) -> Result<[BusValue], BusError> in
            do throws(Errno) {
                let bus = try self.open(&connection.bus)
                var call: OpaquePointer?
                _ = try Errno.check(cportal_new_call(bus, &call, service, path, interface, member))
                guard let call else { throw Errno(ENOMEM) }
                defer { cportal_drop(call) }
                try BusMessage(pointer: call).append(arguments, types)
                var reply: OpaquePointer?
                var name = [CChar](repeating: 0, count: 256)
                var text = [CChar](repeating: 0, count: 1024)
                let result = cportal_call(bus, call, seconds * 1_000_000, &reply, &name, name.count, &text, text.count)
                defer { if let reply { cportal_drop(reply) } }
                if let reply, let sender = cportal_sender(reply) { self.signal?.hasAnswered(String(cString: sender)) }
                // What has come before the answer.
                _ = cportal_process_received(bus)
                if result < 0 {
                    let error = BusError(name: BusClient.text(name), text: BusClient.text(text))
                    // The next one connects anew, also after a message that is too large for sd-bus (ENOBUFS), which would stay the first in line.
                    if error.name.isEmpty || result == -ECONNRESET || result == -ENOTCONN || result == -ENOBUFS {
                        cportal_close(bus)
                        connection.bus = nil
                    }
                    return .failure(error)
                }
                guard let reply else { throw Errno(EBADMSG) }
                do throws(Errno) {
                    return .success(try BusMessage(pointer: reply).values(within: BusClient.largest).values)
                } catch {
                    return .failure(BusError(name: "", text: error.description, isUnreadable: true))
                }
            } catch {
                return .failure(BusError(name: "", text: error.description))
            }
        }.get()
    }

    private func open(_ bus: inout OpaquePointer?) throws(Errno) -> OpaquePointer {
        if let bus { return bus }
        var opened: OpaquePointer?
        _ = try Errno.check(cportal_open_session(&opened))
        guard let opened else { throw Errno(ENOTCONN) }
        if let signal {
            do throws(Errno) {
                let context = Unmanaged.passUnretained(signal).toOpaque()
                _ = try Errno.check(
                    cportal_match(opened, signal.service, signal.path, signal.interface, signal.member, Self.receiveSignal, context))
            } catch {
                cportal_close(opened)
                throw error
            }
        }
        bus = opened
        return opened
    }

    private static let receiveSignal: @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Int32 = { message, context in
        guard let message, let context, let sender = cportal_sender(message) else { return 0 }
        let signal = Unmanaged<Signal>.fromOpaque(context).takeUnretainedValue()
        let name = String(cString: sender)
        guard signal.senders.withLock({ $0.contains(name) }) else { return 0 }
        signal.act(BusMessage(pointer: message).readableValues(within: largest))
        return 0
    }

    private static func text(_ bytes: [CChar]) -> String {
        String(decoding: bytes.prefix { $0 != 0 }.map { UInt8(bitPattern: Int8(truncatingIfNeeded: $0)) }, as: UTF8.self)
    }
}
