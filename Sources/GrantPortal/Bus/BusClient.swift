import CGrantPortal
import Glibc
import GrantSystem

/// The error that was answered instead of a result, or why there was no answer (`name` is empty then).
struct BusError: Error {
    let name: String
    let text: String
    /// There is an answer, and it cannot be read.
    var isUnreadable = false

    /// No program has the service's name, and none can be started that would take it.
    var isAbsence: Bool {
        let names = [
            "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
            "org.freedesktop.systemd1.NoSuchUnit", "org.freedesktop.systemd1.UnitMasked",
        ]
        return names.contains(name) || name.hasPrefix("org.freedesktop.DBus.Error.Spawn")
    }
}

/// Calls services on the session bus, one call at a time, by a connection of its own.
///
/// Locking: one lock, held during a call until it is answered.
final class BusClient: Sendable {
    /// A signal of the service that is called, handled in order with its answers: when a call returns, the signals that were sent before its answer have been handled, and none that
    /// was sent after it.
    final class Signal: Sendable {
        let (service, path, interface, member, argument): (String, String, String, String, String)
        /// Gets the values that the signal carries, up to the first that cannot be read. It must not make calls.
        let act: @Sendable ([BusValue]) -> Void
        /// The last two connections from which answers came, which are the service's. Signals of other connections are ignored.
        fileprivate let senders = Lock<[String]>([])

        /// `argument`: what the signal's first value must be. The bus keeps all others from this connection.
        init(
            service: String, path: String, interface: String, member: String, argument: String,
            act: @escaping @Sendable ([BusValue]) -> Void
        ) {
            (self.service, self.path, self.interface, self.member, self.argument, self.act) =
                (service, path, interface, member, argument, act)
        }

        fileprivate func hasAnswered(_ sender: String) {
            senders.withLock { if $0.last != sender { $0 = $0.suffix(1) + [sender] } }
        }
    }

    private struct Connection: @unchecked Sendable {
        // Safe to share: used with the lock held.
        var bus: OpaquePointer?
        /// Whether the next call must fail, because signals may have been missed.
        var hasMissed = false
    }

    /// The services that are called are trusted, and the permission store's lists are long.
    private static let largest = BusLoad(calls: 1, values: .max, bytes: .max, descriptors: 16)

    private let connection = Lock(Connection())
    private let signal: Signal?

    init(hears signal: Signal? = nil) { self.signal = signal }

    deinit { connection.withLock { if let bus = $0.bus { cportal_close(bus) } } }

    /// Calls a method and returns its results. It connects first if necessary, and waits so many seconds for the answer.
    func call(
        _ service: String, _ path: String, _ interface: String, _ member: String, _ types: String = "", _ arguments: [BusValue] = [],
        seconds: UInt64 = 10
    ) throws(BusError) -> [BusValue] {
        try connection.withLock { (connection: inout Connection) -> Result<[BusValue], BusError> in
            if connection.hasMissed {
                connection.hasMissed = false
                return .failure(BusError(name: "", text: "the bus has dropped messages to this program"))
            }
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
                // Handles the signals that came before the answer.
                _ = cportal_process_received(bus)
                if result < 0 {
                    let error = BusError(name: BusClient.text(name), text: BusClient.text(text))
                    // The next call connects again. That also ends a message that is too large for
                    // sd-bus (ENOBUFS), which would block all that follow it, and the wait for
                    // others' messages to this connection.
                    if error.name.isEmpty || [ECONNRESET, ENOTCONN, ENOBUFS, ETIMEDOUT].contains(-result) {
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

    /// The unique name of the connection, or nil when there is none now.
    var name: String? { connection.withLock { $0.bus.flatMap { cportal_name($0) }.map { String(cString: $0) } } }

    /// Gives the connection up, because the bus may have dropped messages for it. If signals are
    /// followed, the next call fails, so that the received signals do not count as complete.
    func giveUp() {
        connection.withLock { connection in
            guard let bus = connection.bus else { return }
            cportal_close(bus)
            (connection.bus, connection.hasMissed) = (nil, signal != nil)
        }
    }

    /// Handles the signals that have come since the last call. It waits for a call that is under
    /// way, and reads for half a second at most, so that signals without pause do not keep the
    /// connection from being used.
    func receive() {
        connection.withLock { connection in
            guard let bus = connection.bus else { return }
            let deadline = Clock.monotonic + 500_000_000
            while Clock.monotonic < deadline {
                let result = cportal_process(bus)
                if result > 0 { continue }
                // The next call fails with the same error, and the one after it connects again. A
                // new connection here would hide that signals were missed.
                if result < 0 { return }
                // A long message comes in parts, for which the bus needs a moment.
                var entry = pollfd(fd: cportal_descriptor(bus), events: Int16(truncatingIfNeeded: POLLIN), revents: 0)
                guard poll(&entry, 1, 10) > 0 else { return }
            }
        }
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
                    cportal_match(
                        opened, signal.service, signal.path, signal.interface, signal.member, signal.argument, Self.receiveSignal, context))
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

extension BusClient {
    static let daemon = "org.freedesktop.DBus"

    /// Calls a method of the bus itself, with texts as arguments, and returns the first result.
    func ask(_ member: String, _ arguments: [BusValue] = [], interface: String = BusClient.daemon) throws(BusError) -> BusValue? {
        let types = String(repeating: "s", count: arguments.count)
        return try call(Self.daemon, "/org/freedesktop/DBus", interface, member, types, arguments).first
    }
}
