import GrantControl
@preconcurrency import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// Asks the daemon of the store's mount to hand over, and to write its state to this file. Prints
/// its reply.
func takeOver(into path: String) throws {
    let store = try GrantStore(directory: CommandLine.arguments[1], create: false)
    let deadline = Clock.deadline(seconds: 20)
    let socket = try ControlClient.open(try store.mounts()[0].socket, in: store.runDirectory, deadline: deadline)
    try Frame.send(ControlRequest.handOver.encoded, over: socket, deadline: deadline)
    let file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
    try socket.send(descriptors: [file], deadline: deadline)
    switch try HandoverMessage.receive(over: socket, deadline: deadline) {
    case .refused(let reason): print("refused: \(reason)")
    default: print("something else")
    }
}

/// Sends the daemon of the store's mount messages that no presenter sends, each on its own
/// connection, and prints the outcome.
func talkNonsense(_ path: [UInt8]) throws {
    let store = try GrantStore(directory: CommandLine.arguments[1], create: false)
    let record = try store.mounts()[0]
    func session() throws -> SessionClient {
        try SessionClient(socket: record.socket, directory: store.runDirectory, deadline: Clock.deadline(seconds: 10))
    }
    /// The next message, or nil if the connection was ended.
    func next(_ client: SessionClient) -> SessionNews? {
        for _ in 0..<5_000 {
            do { if let news = try client.next() { return news } } catch { return nil }
            usleep(2_000)
        }
        return nil
    }
    func say(_ name: String, _ requests: [SessionRequest], _ count: Int = 1) throws {
        let client = try session()
        for request in requests { try? client.send(request) }
        for _ in 0..<count - 1 { _ = next(client) }
        switch next(client) {
        case .presenting: print("\(name): presenting")
        case .notPresenting(_, let refusal, _): print("\(name): \(refusal)")
        case .preparing(_, let asked, _, let isOver): print("\(name): \(asked) \(isOver)")
        case .refused(_, let refusal, _): print("\(name): \(refusal)")
        case nil: print("\(name): cut off")
        default: print("\(name): something else")
        }
    }
    func presenter(_ number: UInt64, _ path: [UInt8]) -> SessionRequest {
        .present(PresentRequest(number: number, path: path, purpose: nil))
    }

    let ahead = try session()
    try ahead.send(.watch(since: nil))
    if case .listening(let mark, _) = next(ahead) { try ahead.send(.watch(since: EventMark(epoch: mark.epoch, number: .max))) }
    if case .listening(_, let hasMissed) = next(ahead) {
        print("an event to come: \(hasMissed)")
    } else {
        print("an event to come: cut off")
    }
    try say("answer to nothing", [.answer(question: 7, isDone: true), .answer(question: .max, isDone: false), .endClaim(1)])
    try say("end of nothing", [.endPresenting(9), .endClaim(1)])
    try say("twice the number", [presenter(1, path), presenter(1, path), presenter(1, path)], 2)
    try say("no path", [presenter(1, [])])
    try say("relative", [presenter(1, Array("../x".utf8))])
    try say("unknown grant", [.prepareRevocation(number: 1, id: .random(), grant: .random(), milliseconds: .max)])
    let crowded = try session()
    for number in 0..<2_000 { try? crowded.send(presenter(UInt64(number), path)) }
    var isEnded = false
    for _ in 0..<2_001 where !isEnded { isEnded = next(crowded) == nil }
    print("too many: \(isEnded ? "ended" : "taken")")

    // A presenter with unlimited patience gets a minute.
    let slow = try session()
    try slow.send(.present(PresentRequest(number: 1, path: path, purpose: nil, patienceMilliseconds: .max)))
    _ = next(slow)
    let coordination = coordinator()
    try WorkerThread.start("claim") { _ = try? coordination.claim([.writing(path)], timeout: 5) }.detach()
    if case .asks(let ask) = next(slow) { print("for ever: \(ask.milliseconds)") }
}
