@preconcurrency import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

// Claims of a separate program for the tests:
// `ClaimProbe STORE many PATH COUNT`, `ClaimProbe STORE script`.
// Presenters: `ClaimProbe STORE present PATH PATIENCE PURPOSE`, `ClaimProbe STORE presenters PATH COUNT`,
// `ClaimProbe STORE nonsense PATH`, `ClaimProbe STORE take-over FILE`.
// What is known of this boot without a free descriptor, with some, and without again: `ClaimProbe - boot`.
// Programs that use files without claims: `ClaimProbe - load DIRECTORY THREADS`, `ClaimProbe - map FILE`.

setvbuf(stdout, nil, _IOLBF, 0)
let words = CommandLine.arguments
guard words.count >= 3 else { exit(2) }

// A thousand claims need a thousand connections, and the starter of the tests may allow fewer, such
// as the kernel's own 1,024.
var descriptors = rlimit()
if getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &descriptors) == 0 {
    descriptors.rlim_cur = max(descriptors.rlim_cur, min(descriptors.rlim_max, 65536))
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &descriptors)
}

func coordinator() -> FileCoordination {
    guard let store = try? GrantStore(directory: words[1], create: false) else { exit(2) }
    return FileCoordination(GrantAdministrator(store: store))
}

/// The results of the threads of `many`.
struct Tally: Sendable {
    var waiting: Set<Int> = []
    var inside = 0
    var most = 0
    var done = 0
    var failed = 0
    var errors: Set<Int32> = []
}

/// Starts one thread for each of `count` claims for writing, all of which wait for this one. Few ask at once, and fewer
/// on a slower machine, because a daemon has only ten seconds to report that a claim must wait.
func many(_ path: [UInt8], _ count: Int) throws {
    let coordination = coordinator()
    let own = try coordination.claim([.writing(path)])
    let tally = Lock(Tally())
    let slowness = getenv("GRANTFS_SLOWNESS").flatMap { Int(String(cString: $0)) } ?? 1
    let atOnce = max(1, 32 / max(1, slowness))
    for number in 0..<count {
        while tally.withLock({ number - $0.waiting.count - $0.failed }) >= atOnce { usleep(1_000) }
        try WorkerThread.start("claim") {
            var granted: Claim?
            do throws(CoordinationError) {
                granted = try coordination.claim([.writing(path)]) { _ in tally.withLock { _ = $0.waiting.insert(number) } }
            } catch {
                tally.withLock { _ = $0.errors.insert(error.errno) }
            }
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
    print("\(end.done) done, \(end.most) at once, \(end.failed) failed" + (end.failed > 0 ? ", error numbers \(end.errors.sorted())" : ""))
}

/// Makes claims by lines: `read PATH` and `write PATH…` are each answered with `granted` or the
/// error. `end` ends the last claim, and `lost` waits for its loss.
/// `peek` reads the present data, saved or not. `soon` waits for a fifth of a second. `as PURPOSE`
/// sets the purpose of the claims that follow.
func script() {
    // On a machine that is several times slower (TestSupport's `Machine.slowness`) the patience
    // grows by the same factor.
    let patience = 20 * max(1, getenv("GRANTFS_SLOWNESS").flatMap { Double(String(cString: $0)) } ?? 1)
    let coordination = coordinator()
    var claims: [Claim] = []
    var purpose: String?
    while let line = readLine() {
        let parts = line.split(separator: " ").map { Array($0.utf8) }
        do throws(CoordinationError) {
            switch String(decoding: parts[0], as: UTF8.self) {
            case "read": claims.append(try coordination.claim(parts.dropFirst().map { .reading($0) }, purpose: purpose, timeout: patience))
            case "write": claims.append(try coordination.claim(parts.dropFirst().map { .writing($0) }, purpose: purpose, timeout: patience))
            case "peek": claims.append(try coordination.claim(parts.dropFirst().map { .reading($0, savesFirst: false) }, timeout: patience))
            case "soon": claims.append(try coordination.claim(parts.dropFirst().map { .writing($0) }, timeout: 0.2))
            case "as": purpose = String(decoding: parts[1], as: UTF8.self)
            case "try": claims.append(try coordination.claim(parts.dropFirst().map { .writing($0) }, timeout: 0))
            case "moved": claims.last?.tellMoved(parts[1], to: parts[2])
            case "end": claims.popLast()?.end()
            case "lost":
                print(claims.last?.waitUntilLost(patience).map { "lost \($0.errno)" } ?? "held")
                continue
            default: exit(2)
            }
            print("granted")
        } catch {
            print("error \(error.errno)")
        }
    }
}

/// Changes files in every way until its input ends: overwrites all of a file, appends, saves by
/// renaming, makes and removes.
func load(_ directory: String, _ threads: Int) throws {
    let (isOver, results) = (Lock(false), Lock((done: 0, errors: [Int32](), ended: 0)))
    for number in 0..<threads {
        try WorkerThread.start("load") {
            let (whole, log, saved) = ("\(directory)/whole\(number)", "\(directory)/log\(number)", "\(directory)/saved\(number)")
            var generation: UInt8 = 0
            func note(_ result: Int) {
                let error = errno
                results.withLock {
                    $0.done += 1; if result < 0 { $0.errors.append(error) }
                }
            }
            func write(_ path: String, _ flags: Int32, _ size: Int) {
                let file = open(path, flags | O_CREAT, 0o644)
                note(Int(file))
                guard file >= 0 else { return }
                note(pwrite(file, [UInt8](repeating: generation, count: size), size, 0))
                note(Int(close(file)))
            }
            while !isOver.withLock({ $0 }) {
                generation &+= 1
                write(whole, O_RDWR, 65_536)
                write(log, O_WRONLY | O_APPEND, 100)
                write(saved + "~", O_WRONLY | O_TRUNC, 5_000)
                note(Int(rename(saved + "~", saved)))
                note(Int(mkdir("\(directory)/d\(number)", 0o755)))
                note(Int(rmdir("\(directory)/d\(number)")))
            }
            results.withLock { $0.ended += 1 }
        }.detach()
    }
    print("begun")
    while readLine() != nil { print("\(results.withLock { $0.done })") }
    isOver.withLock { $0 = true }
    while results.withLock({ $0.ended }) < threads { usleep(5_000) }
    results.withLock { print("\($0.errors.count) errors \(Set($0.errors).sorted())") }
}

/// Maps a file for writing. Each line is a byte that is stored at its beginning.
func map(_ path: String) {
    let file = open(path, O_RDWR)
    let memory = mmap(nil, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)!
    close(file)
    memory.storeBytes(of: UInt8(ascii: "0"), as: UInt8.self)
    print("mapped")
    while let line = readLine() {
        memory.storeBytes(of: line.utf8.first!, as: UInt8.self)
        print("stored")
    }
}

/// Prints whether the id of the boot is known while this process can open nothing, before its first
/// look and after it.
func boot() {
    var changed = rlimit()
    getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &changed)
    let limits = [0, changed.rlim_cur, 0]
    let known = limits.map { limit in
        changed.rlim_cur = limit
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &changed)
        return Boot.known == nil ? "unknown" : "known"
    }
    print(known.joined(separator: " "))
}

switch words[2] {
case "boot": boot()
case "load" where words.count == 5: try load(words[3], Int(words[4]) ?? 0)
case "map" where words.count == 4: map(words[3])
case "many" where words.count == 5: try many(Array(words[3].utf8), Int(words[4]) ?? 0)
case "script": script()
case "present" where words.count >= 4:
    ProbePresenter().present(
        Array(words[3].utf8), purpose: words.count > 5 ? words[5] : nil, timeout: words.count > 4 ? Double(words[4]) : nil)
case "take-over" where words.count == 4: try takeOver(into: words[3])
case "nonsense" where words.count == 4: try talkNonsense(Array(words[3].utf8))
case "presenters" where words.count == 5: presentMany(Array(words[3].utf8), Int(words[4]) ?? 0)
default: exit(2)
}
