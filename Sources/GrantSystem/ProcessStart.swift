import CGrantSystem
import Glibc

/// The first step of a process of the program, before it opens anything.
public enum ProcessStart {
    /// Prepares the process. Ends it if that fails.
    public static func prepare() {
        // A file that got the number of a closed standard descriptor would be written to, or
        // replaced (dup2(2)).
        guard clinux_open_standard_descriptors() == 0 else { exit(1) }
        // A write beyond RLIMIT_FSIZE fails with EFBIG instead. Programs that this process starts
        // get the default back.
        signal(SIGXFSZ, SIG_IGN)
    }
}
