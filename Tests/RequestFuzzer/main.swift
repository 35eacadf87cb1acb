// Sends requests to the daemon's session, as the kernel writes them. They have opcodes, nodes,
// files, flags, names and numbers at their limits, and some messages are cut off.
// The session has no mount, and uses a real directory. Every message must get one reply, with an
// error that the kernel accepts, and must not end the process.
//
// The directory must be in a small filesystem in memory (GRANTFS_FUZZ_DIRECTORY): requests make
// large files and odd nodes, which must not affect the rest of the machine. Requests cannot leave
// the directory. It is the process's working directory for the sake of relative links.
//
// Built with -DFUZZING it is libFuzzer's program (.ci/fuzz). Otherwise it is RequestFuzzer SEED
// COUNT, which makes COUNT runs of a few hundred requests each.
import CGrantSystem
import GrantFUSE
import Glibc
import GrantModel

/// Returns the directory, or ends the program unless requests can do no harm there.
func place() -> String {
    guard let path = getenv("GRANTFS_FUZZ_DIRECTORY").map({ String(cString: $0) }) else { fatalError("GRANTFS_FUZZ_DIRECTORY is not set") }
    var (type, number, space): (Int64, UInt64, statvfs) = (0, 0, statvfs())
    let directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    let isInMemory = clinux_fstatfs_type(directory, &type, &number) == 0 && type == 0x0102_1994
    guard isInMemory, fstatvfs(directory, &space) == 0, space.f_blocks &* space.f_frsize <= 256 << 20, space.f_blocks > 0 else {
        fatalError("\(path) is in no small filesystem in memory")
    }
    fchdir(directory)
    return path
}

// The messages report refusals, and there are millions of them.
signal(SIGPIPE, SIG_IGN)
let base = place()
GrantFUSE.Identity.prepareProcess()
GrantFUSE.Identity.resetOnThisThread()
let served = try [CacheMode.shared, .exclusive, .none].enumerated().map { number, cache in
    let directory = base + "/\(number)"
    mkdir(directory, 0o777)
    return try Served(cache, directory)
}

@MainActor func run(_ choices: Choices) {
    var choices = choices
    do { try served[choices.below(served.count)].run(&choices) } catch { fatalError("\(error)") }
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
            let copy = Array(UnsafeBufferPointer(start: bytes, count: length))
            MainActor.assumeIsolated { run(Choices(copy)) }
            return 0
        })
#else
    guard CommandLine.argc == 3, let seed = UInt64(CommandLine.arguments[1]), let count = UInt64(CommandLine.arguments[2]) else {
        fatalError("usage: RequestFuzzer SEED COUNT")
    }
    for number in 0..<count {
        let own = seed &+ number
        // Printed first, so that a crash shows the seed of its run.
        if getenv("GRANTFS_FUZZ_SAYS") != nil { print("seed \(own)"); fflush(nil) }
        run(Choices(seed: own, count: 4096))
    }
    print("seeds from \(seed), \(count) runs, \(served.reduce(0) { $0 + $1.count }) requests")
#endif
