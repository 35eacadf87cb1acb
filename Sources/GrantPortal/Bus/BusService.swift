import CGrantPortal
import Glibc
import GrantSystem
import Synchronization

/// A call that has come in. It must be answered once.
struct BusCall: @unchecked Sendable {
    // Safe to share: the receipt is used only with the lock of its bus held.
    /// Identifies the call when it is answered. The message itself is not kept, nor are the bytes and descriptors that came with it.
    fileprivate let receipt: OpaquePointer
    let sender: String
    let interface: String
    let member: String
    let arguments: [BusValue]
    let load: BusLoad
}

/// The connection by which calls come in. One thread listens. Any thread may send answers.
///
/// Locking: `bus` for every use of the connection and of its messages, never while waiting for anything else. Handlers run with it held.
final class BusService: @unchecked Sendable {
    // Safe to share: the handlers are set before it runs, and the rest is locked or atomic.
    private struct Connection: @unchecked Sendable { var bus: OpaquePointer }

    private let bus: Lock<Connection>
    /// The connection and its descriptor, for the listening thread. Handlers use these, because they run with the lock held.
    private var listening: OpaquePointer
    private var descriptor: Int32
    private let wake: PipePair
    private let isWoken = Atomic(false)
    private let hasEnded = Atomic(false)
    private let isToRenew = Atomic(false)
    private let onCall: (BusCall) -> Void
    /// Whether no more calls can be taken at present.
    private let isFull: () -> Bool
    private let path: String
    private var onSignals: [SignalHandler] = []
    private var names: [String] = []

    private final class SignalHandler {
        let act: ([BusValue], String) -> Void
        let (member, argument, interface, path, sender): (String, String?, String, String?, String?)

        init(
            _ member: String, _ argument: String?, _ interface: String, _ path: String?, _ sender: String?,
            _ act: @escaping ([BusValue], String) -> Void
        ) {
            (self.member, self.argument, self.interface, self.path, self.sender, self.act) = (
                member, argument, interface, path, sender, act
            )
        }

        func listen(on bus: OpaquePointer) throws(Errno) {
            let context = Unmanaged.passUnretained(self).toOpaque()
            _ = try Errno.check(cportal_match(bus, sender, path, interface, member, argument, BusService.receiveSignal, context))
        }
    }

    /// Connects to the session bus. `onCall` gets each call, and `isFull` is asked before the next.
    /// Both are called on the listening thread, under the lock.
    init(path: String, onCall: @escaping (BusCall) -> Void, isFull: @escaping () -> Bool) throws(Errno) {
        var bus: OpaquePointer?
        _ = try Errno.check(cportal_open_session(&bus))
        guard let bus else { throw Errno(ENOTCONN) }
        self.bus = Lock(Connection(bus: bus))
        listening = bus
        descriptor = cportal_descriptor(bus)
        wake = try PipePair()
        self.path = path
        self.onCall = onCall
        self.isFull = isFull
        let context = Unmanaged.passUnretained(self).toOpaque()
        _ = try Errno.check(cportal_serve_documents(bus, path, BusService.receiveCall, context))
    }

    deinit { bus.withLock { cportal_close($0.bus) } }

    /// The unique name of the connection.
    var name: String? { bus.withLock { cportal_name($0.bus).map { String(cString: $0) } } }

    /// Calls `act` with a signal's values, and its sender, on the listening thread, under the lock.
    /// Call it before `run`. `argument` is the required first value of the signal: the bus sends no
    /// other signals. Of a signal that carries more than a message may, `act` gets the first
    /// values, as far as they are within these bounds.
    func listen(
        to member: String, about argument: String? = nil, of interface: String, at path: String?, from sender: String?,
        _ act: @escaping ([BusValue], String) -> Void
    ) throws(Errno) {
        let handler = SignalHandler(member, argument, interface, path, sender, act)
        onSignals.append(handler)
        try bus.withLock { (connection: inout Connection) throws(Errno) in try handler.listen(on: connection.bus) }
    }

    /// Takes the name. EEXIST when another connection has it and keeps it.
    func take(name: String, replaces: Bool) throws(Errno) {
        _ = try Errno.check(bus.withLock { cportal_request_name($0.bus, name, replaces) })
        names.append(name)
    }

    /// Listens until `end` is called, or until the bus has gone, which is an error.
    ///
    /// sd-bus does not read the largest messages that the bus accepts. Such a message blocks all that follow it, so the connection is replaced by a new one. The bus tells callers
    /// that wait for an answer on the old one that there is none. `reconnected` is called after that: signals were missed in between.
    func run(reconnected: () -> Void) throws(Errno) {
        while true {
            do throws(Errno) {
                return try listen()
            } catch {
                guard ![ENOTCONN, ECONNRESET, EPIPE, ESHUTDOWN].contains(error.rawValue) else { throw error }
                try reconnect()
                reconnected()
                // A caller that sends such messages without pause does not keep this thread busy.
                usleep(100_000)
            }
        }
    }

    /// Has the connection replaced by a new one, as after a message that sd-bus does not read.
    func renew() {
        isToRenew.store(true, ordering: .releasing)
        wakeUp()
    }

    /// Makes a new connection. It takes the name over before the old one is closed, so that no other program gets it.
    private func reconnect() throws(Errno) {
        var bus: OpaquePointer?
        _ = try Errno.check(cportal_open_session(&bus))
        guard let bus else { throw Errno(ENOTCONN) }
        do throws(Errno) {
            _ = try Errno.check(cportal_serve_documents(bus, path, BusService.receiveCall, Unmanaged.passUnretained(self).toOpaque()))
            for handler in onSignals { try handler.listen(on: bus) }
            for name in names { _ = try Errno.check(cportal_request_name(bus, name, true)) }
        } catch {
            cportal_close(bus)
            throw error
        }
        self.bus.withLock { connection in
            cportal_close(connection.bus)
            connection.bus = bus
            listening = bus
            descriptor = cportal_descriptor(bus)
        }
    }

    private func listen() throws(Errno) {
        while !hasEnded.load(ordering: .acquiring) {
            if isToRenew.exchange(false, ordering: .acquiringAndReleasing) { throw Errno(ENOBUFS) }
            let isFull = isFull()
            if !isFull {
                let result = bus.withLock { cportal_process($0.bus) }
                if result > 0 { continue }
                if result < 0, result != -EINTR { throw Errno(Errno.number(of: result)) }
            }
            let events = isFull ? 0 : bus.withLock { cportal_events($0.bus) }
            try wait(max(0, events))
        }
    }

    /// Ends `run`. Calls that have come in are not answered any more. The bus tells their callers.
    func end() {
        hasEnded.store(true, ordering: .releasing)
        wakeUp()
    }

    /// Has the listening thread look again.
    func wakeUp() {
        guard !isWoken.exchange(true, ordering: .acquiringAndReleasing) else { return }
        _ = write(wake.writing.number, [1 as UInt8], 1)
    }

    private func wait(_ events: Int32) throws(Errno) {
        var entries = [
            pollfd(fd: wake.reading.number, events: Int16(truncatingIfNeeded: POLLIN), revents: 0),
            pollfd(fd: descriptor, events: Int16(truncatingIfNeeded: events), revents: 0),
        ]
        // Without events to wait for, the bus is not polled. `listen` notices its end.
        if poll(&entries, events == 0 ? 1 : 2, 1000) < 0, errno != EINTR { throw Errno(errno) }
        guard entries[0].revents != 0 else { return }
        var byte: UInt8 = 0
        _ = read(wake.reading.number, &byte, 1)
        isWoken.store(false, ordering: .releasing)
    }

    private static let receiveCall: @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Int32 = { message, context in
        guard let message, let context else { return 0 }
        let service = Unmanaged<BusService>.fromOpaque(context).takeUnretainedValue()
        guard let sender = cportal_sender(message), let member = cportal_member(message), let interface = cportal_interface(message) else {
            return -EBADMSG
        }
        do throws(Errno) {
            let (arguments, load) = try BusMessage(pointer: message).values(within: .ofAMessage)
            var receipt: OpaquePointer?
            _ = try Errno.check(cportal_receipt(service.listening, message, &receipt))
            guard let receipt else { return -ENOMEM }
            service.onCall(
                BusCall(
                    receipt: receipt, sender: String(cString: sender), interface: String(cString: interface),
                    member: String(cString: member),
                    arguments: arguments, load: load))
            return 1
        } catch {
            guard error == Errno(E2BIG) else { return 0 &- error.rawValue }  // sd-bus reports that to the caller.
            _ = cportal_refuse(message, PortalError.Kind.limitsExceeded.rawValue, "The message carries too much")
            return 1
        }
    }

    private static let receiveSignal: @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Int32 = { message, context in
        guard let message, let context else { return 0 }
        let handler = Unmanaged<SignalHandler>.fromOpaque(context).takeUnretainedValue()
        // The first values are enough: they say which document has changed, even if its entry is too large.
        let values = BusMessage(pointer: message).readableValues(within: .ofAMessage)
        handler.act(values, cportal_sender(message).map { String(cString: $0) } ?? "")
        return 0
    }

    /// Answers a call with values of these types. If the caller has gone, nothing happens.
    func reply(to call: BusCall, _ types: String, _ values: [BusValue]) {
        bus.withLock { connection in
            defer { cportal_drop(call.receipt) }
            var reply: OpaquePointer?
            guard cportal_new_reply(call.receipt, &reply) >= 0, let reply else { return }
            defer { cportal_drop(reply) }
            do throws(Errno) {
                try BusMessage(pointer: reply).append(values, types)
                _ = try Errno.check(cportal_send(connection.bus, reply))
            } catch {
                _ = cportal_refuse(call.receipt, PortalError.Kind.failed.rawValue, "the answer cannot be sent: \(error)")
            }
        }
        wakeUp()
    }

    func refuse(_ call: BusCall, _ error: PortalError) {
        bus.withLock { _ in
            _ = cportal_refuse(call.receipt, error.kind.rawValue, error.message)
            cportal_drop(call.receipt)
        }
        wakeUp()
    }

    /// Refuses a call on the listening thread, with the lock held.
    func refuseWhileListening(_ call: BusCall, _ error: PortalError) {
        _ = cportal_refuse(call.receipt, error.kind.rawValue, error.message)
        cportal_drop(call.receipt)
    }

    /// Runs `body` with the lock held, as handlers are run.
    func whileListening(_ body: () -> Void) { bus.withLock { _ in body() } }

    /// Drops a call whose caller has gone. On the listening thread, with the lock held.
    func forgetWhileListening(_ call: BusCall) { cportal_drop(call.receipt) }

    func tell(_ receiver: String, path: String, interface: String, signal: String, _ types: String, _ values: [BusValue]) {
        bus.withLock { connection in
            var message: OpaquePointer?
            guard cportal_new_signal(connection.bus, &message, receiver, path, interface, signal) >= 0, let message else { return }
            defer { cportal_drop(message) }
            guard (try? BusMessage(pointer: message).append(values, types)) != nil else { return }
            _ = cportal_send(connection.bus, message)
        }
        wakeUp()
    }
}
