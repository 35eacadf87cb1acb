import GrantModel
import GrantSystem

/// Where this program was installed.
package enum Installation {
    /// `PREFIX` of a program in `PREFIX/bin` or `PREFIX/libexec/grantfs`, or nil if it cannot be found.
    package static var prefix: [UInt8]? {
        guard let program = try? CanonicalPath.target(of: Array("/proc/self/exe".utf8)) else { return nil }
        return prefix(ofProgramIn: CanonicalPath.parent(of: program))
    }

    static func prefix(ofProgramIn directory: [UInt8]) -> [UInt8] {
        let parent = CanonicalPath.parent(of: directory)
        return directory.suffix(16).elementsEqual("/libexec/grantfs".utf8) ? CanonicalPath.parent(of: parent) : parent
    }
}
