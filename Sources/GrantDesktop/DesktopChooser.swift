import CGrantDesktop
import Glibc
import GrantModel
import GrantSystem

/// The desktop's file chooser, through its portal.
public enum DesktopChooser {
    /// Asks the person and blocks until then. Returns the paths of the chosen directories or files,
    /// or nil if the person cancelled.
    ///
    /// `folder` is where the chooser starts, `title` its heading. Throws `.unsupported` if there is
    /// no portal, `.invalidDirectory` if a choice cannot be granted.
    public static func choose(folder: [UInt8]?, files: Bool = false, title: String? = nil) throws(GrantError) -> [[UInt8]]? {
        let title = title ?? (files ? "Grant files" : "Grant directories")
        let uris = Collector()
        var reason = [CChar](repeating: 0, count: 512)
        let outcome = withCString(folder ?? []) { path in
            cdesktop_choose(
                title, "Grant", folder == nil ? nil : path, files, collect, Unmanaged.passUnretained(uris).toOpaque(), &reason,
                reason.count)
        }
        let why = String(decoding: reason.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        switch outcome {
        case CDESKTOP_CANCELLED: return nil
        case CDESKTOP_CHOSEN: break
        case CDESKTOP_NO_LIBRARY: throw refusal("libsystemd.so.0 cannot be loaded", advice: "install the package libsystemd0")
        case CDESKTOP_NO_BUS:
            throw refusal("there is no session bus: \(why)", advice: "run it in the desktop's session, or without --desktop")
        case CDESKTOP_NO_PORTAL:
            throw refusal("there is no desktop portal: \(why)", advice: "install xdg-desktop-portal, or choose without --desktop")
        case CDESKTOP_TOO_OLD: throw refusal("the desktop portal chooses files alone", advice: "choose without --desktop")
        case CDESKTOP_ENDED: throw refusal("it ended without an answer")
        default: throw refusal(why.isEmpty ? "its answer makes no sense" : why)
        }
        var paths: [[UInt8]] = []
        for uri in uris.list { paths.append(try path(uri)) }
        return paths
    }

    private final class Collector {
        var list: [[UInt8]] = []
    }

    private static let collect: @convention(c) (UnsafeMutableRawPointer?, UnsafePointer<CChar>?) -> Void = { context, uri in
        guard let context, let uri else { return }
        let bytes = UnsafeBufferPointer(start: uri, count: strlen(uri)).map { UInt8(bitPattern: $0) }
        Unmanaged<Collector>.fromOpaque(context).takeUnretainedValue().list.append(bytes)
    }

    /// Refuses paths that are not a directory of this machine, and paths that the portal shows only
    /// to sandboxes, because those vanish with it.
    package static func path(_ uri: [UInt8]) throws(GrantError) -> [UInt8] {
        let shown = String(decoding: uri, as: UTF8.self)
        guard let path = FileURI.path(uri) else {
            throw GrantError(.invalidDirectory, "“\(shown)” cannot be granted", cause: "it is not of this machine")
        }
        if isDocument(path) {
            throw GrantError(
                .invalidDirectory, "“\(String(decoding: path, as: UTF8.self))” cannot be granted",
                cause: "it is what the desktop shows of a directory to a sandbox",
                advice: "run grantfs outside of the sandbox, or name the directory: grantfs grant DIR")
        }
        return path
    }

    /// The mounts of the document portal: `/run/user/UID/doc`, and `/run/flatpak/doc` in a sandbox.
    package static func isDocument(_ path: [UInt8]) -> Bool {
        let names = path.split(separator: UInt8(ascii: "/")).map { String(decoding: $0, as: UTF8.self) }
        if names.starts(with: ["run", "flatpak", "doc"]) { return true }
        return names.count >= 4 && names[0] == "run" && names[1] == "user" && UInt32(names[2]) != nil && names[3] == "doc"
    }

    private static func refusal(_ cause: String, advice: String? = nil) -> GrantError {
        GrantError(.unsupported, "the desktop's file chooser cannot be asked", cause: cause, advice: advice)
    }
}
