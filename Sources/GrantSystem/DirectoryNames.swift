import Glibc

/// Lists directories of the program itself or of the system.
public enum DirectoryNames {
    /// All names but `.` and `..`, in listing order.
    ///
    /// - Parameter onProgress: Called for each.
    /// - Throws: The error of opendir(3).
    public static func of(_ directory: some Sequence<UInt8>, _ onProgress: () -> Void = {}) throws(Errno) -> [[UInt8]] {
        guard let stream = withCString(directory, { opendir($0) }) else { throw Errno(errno) }
        defer { closedir(stream) }
        var names: [[UInt8]] = []
        while let entry = readdir(stream) {
            onProgress()
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            if !name.elementsEqual(".".utf8), !name.elementsEqual("..".utf8) { names.append(name) }
        }
        return names
    }
}
