import Glibc

/// Where the wire layer says what a person must know: the descriptor of standard error, one line a message.
public enum SessionLog {
    public static func error(_ message: String) {
        let line = Array("grantfs: \(message)\n".utf8)
        _ = line.withUnsafeBytes { write(2, $0.baseAddress!, $0.count) }
    }
}
