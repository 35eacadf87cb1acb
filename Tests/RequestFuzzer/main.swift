// Gives requests to everything that serves them, as the kernel writes them: kinds, nodes, files, flags, names and numbers at their limits, messages that
// are cut off. The session is the daemon's, without a mount; below it lies a real directory. Whatever comes, it must be answered once, with a number that
// the kernel takes, and must not end the process.
//
// The directory must be in a small filesystem in memory (GRANTFS_FUZZ_DIRECTORY): requests make large files and odd nodes, and nothing else on the
// machine is to be touched. Requests cannot leave it; the process is in it for the sake of relative links.
//
// Built with -DFUZZING it is libFuzzer's program (.ci/fuzz); otherwise: RequestFuzzer SEED COUNT, so many runs of a few hundred requests each.
import CGrantSystem
import GrantFUSE
import Glibc
import GrantModel

/// Ends the program unless the directory is where nothing can be harmed.
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

// The messages say what was refused; there are millions of them.
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
        // Should this be the last one: which it was.
        if getenv("GRANTFS_FUZZ_SAYS") != nil { print("seed \(own)"); fflush(nil) }
        run(Choices(seed: own, count: 4096))
    }
    print("seeds from \(seed), \(count) runs, \(served.reduce(0) { $0 + $1.count }) requests")
#endif
