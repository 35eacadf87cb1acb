/// The access mode with which a file or directory was opened.
public enum OpenAccess: String, Sendable {
    case read
    case write
    case readWrite = "read-write"

    /// Takes the flags of open(2). The fourth value of O_ACCMODE asks for the rights of both.
    public init(flags: Int32) {
        switch flags & 3 {
        case 0: self = .read
        case 1: self = .write
        default: self = .readWrite
        }
    }
}
