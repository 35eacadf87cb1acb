@preconcurrency import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import LinuxFS

// Claims of a program of its own, for the tests: `ClaimProbe STORE many PATH COUNT`, `ClaimProbe STORE script`.

setvbuf(stdout, nil, _IOLBF, 0)
let words = CommandLine.arguments
guard words.count >= 3, let store = try? GrantStore(directory: words[1], create: false) else { exit(2) }
let coordination = FileCoordination(GrantAdministrator(store: store))

/// What the threads of `many` have done.
struct Tally: Sendable {
    var waiting: Set<Int> = []
    var inside = 0
    var most = 0
    var done = 0
    var failed = 0
}

/// One thread for each of `count` claims for writing, all of which wait for this one.
func many(_ path: [UInt8], _ count: Int) throws {
    let own = try coordination.claim([.writing(path)])
    let tally = Lock(Tally())
    for number in 0..<count {
        try WorkerThread.start("claim") {
            let granted = try? coordination.claim([.writing(path)]) { _ in tally.withLock { _ = $0.waiting.insert(number) } }
            tally.withLock { tally in
                tally.inside += 1
                tally.most = max(tally.most, tally.inside)
                if granted == nil { tally.failed += 1 }
            }
            tally.withLock { $0.inside -= 1 }
            granted?.end()
            tally.withLock { $0.done += 1 }
        }.detach()
    }
    while tally.withLock({ $0.waiting.count + $0.failed }) < count { usleep(5_000) }
    print("waiting")
    _ = readLine()
    own.end()
    while tally.withLock({ $0.done }) < count { usleep(5_000) }
    let end = tally.withLock { $0 }
    print("\(end.done) done, \(end.most) at once, \(end.failed) failed")
}

/// Lines: `read PATH`, `write PATH…`, each answered with `granted` or the error; `end` gives the last one back; `lost` waits for its loss.
func script() {
    var claims: [Claim] = []
    while let line = readLine() {
        let parts = line.split(separator: " ").map { Array($0.utf8) }
        do throws(CoordinationError) {
            switch String(decoding: parts[0], as: UTF8.self) {
            case "read": claims.append(try coordination.claim(parts.dropFirst().map { CoordinatedAccess.reading($0) }, timeout: 20))
            case "write": claims.append(try coordination.claim(parts.dropFirst().map { .writing($0) }, timeout: 20))
            case "try": claims.append(try coordination.claim(parts.dropFirst().map { .writing($0) }, timeout: 0))
            case "end": claims.popLast()?.end()
            case "lost":
                print(claims.last?.waitUntilLost(20).map { "lost \($0.errno)" } ?? "held")
                continue
            default: exit(2)
            }
            print("granted")
        } catch {
            print("error \(error.errno)")
        }
    }
}

switch words[2] {
case "many" where words.count == 5: try many(Array(words[3].utf8), Int(words[4]) ?? 0)
case "script": script()
default: exit(2)
}
