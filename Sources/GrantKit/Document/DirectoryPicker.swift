import Foundation
import GrantAdministration
import GrantModel
import GrantSystem

/// The parameters of a picker.
public struct PickRequest: Sendable {
    /// The preselected view, if the person can change it.
    public var view: ViewName
    public var access: GrantAccess
    /// The start directory. If it is nil, the terminal and the desktop start where the last pick
    /// ended.
    public var start: URL?
    /// Whether files are picked instead of directories. Each is granted in a directory of its own, where programs can save by a rename.
    public var picksFiles: Bool
    /// When the grants expire.
    public var expires: Date?

    public init(
        view: ViewName = .standard, access: GrantAccess = .readWrite, start: URL? = nil, picksFiles: Bool = false, expires: Date? = nil
    ) {
        (self.view, self.access, self.start, self.picksFiles, self.expires) = (view, access, start, picksFiles, expires)
    }
}

/// Asks a person for directories or files, and grants them.
///
/// There, a picker is a window of the system, and its choices are what the program may use. Here there are three: in the terminal
/// (`TerminalPicker`), the desktop's file chooser through its portal (`DesktopPicker`), or a dialog of the program's own
/// (`DialogPicker`), such as those of GTK and Qt.
public protocol DirectoryPicker: Sendable {
    /// Asks, and waits until the person is done.
    ///
    /// - Returns: The grants, or an empty array if nothing was chosen.
    /// - Throws: `.system` if there is no person to ask.
    func pick(_ request: PickRequest) async throws(GrantError) -> [GrantedDirectory]
}

/// Asks in the program's terminal, by running `grantfs pick`.
public struct TerminalPicker: DirectoryPicker {
    public init() {}

    public func pick(_ request: PickRequest) async throws(GrantError) -> [GrantedDirectory] {
        if request.picksFiles {
            throw GrantError(
                .unsupported, "files cannot be picked in the terminal", advice: "type a file's path there, or use DesktopPicker")
        }
        return try await PickProgram.run(request, isDesktop: false)
    }
}

/// Asks with the desktop's file chooser, by org.freedesktop.portal.FileChooser on the session bus, by running `grantfs pick --desktop`.
public struct DesktopPicker: DirectoryPicker {
    public init() {}

    public func pick(_ request: PickRequest) async throws(GrantError) -> [GrantedDirectory] {
        try await PickProgram.run(request, isDesktop: true)
    }
}

/// Asks with the program's own dialog, and grants its choices.
public struct DialogPicker: DirectoryPicker {
    private let show: @Sendable (PickRequest) async -> [URL]

    /// Makes a picker from a dialog.
    ///
    /// - Parameter show: Shows the dialog and returns the choices, or an empty array if it was
    ///   closed.
    public init(_ show: @escaping @Sendable (PickRequest) async -> [URL]) { self.show = show }

    /// Grants all choices or none. An active grant with the same access and expiry is kept. An
    /// identical grant that was revoked is restored. A directory whose name is taken in the view
    /// gets another name there. The error says which choices cannot be granted.
    public func pick(_ request: PickRequest) async throws(GrantError) -> [GrantedDirectory] {
        let urls = await show(request)
        return urls.isEmpty ? [] : try PickedItems(request).grant(urls)
    }
}

/// Runs `grantfs pick`, which has the terminal meanwhile.
private enum PickProgram {
    static func run(_ request: PickRequest, isDesktop: Bool) async throws(GrantError) -> [GrantedDirectory] {
        let environment = GrantEnvironment.current
        var words = ["--view", request.view.description]
        if request.access == .readOnly { words.append("--read-only") }
        if isDesktop { words.append("--desktop") }
        if request.picksFiles { words += ["--files", "--as-directory"] }
        if let expires = request.expires { words += ["--expires", expires.formatted(.iso8601)] }
        let store = try environment.administrator(create: true).store.directory
        let start = try request.start.map { (url) throws(GrantError) in try FilePath.words(url) }
        let arguments = (["grantfs", "pick", "--store", store] + words + ["--"]).map { Array($0.utf8) } + (start.map { [$0] } ?? [])
        let result = await withCheckedContinuation { (continuation: CheckedContinuation<Result<[GrantID], GrantError>, Never>) in
            let work: @Sendable () -> Void = {
                do throws(GrantError) {
                    continuation.resume(returning: .success(try ids(of: arguments)))
                } catch {
                    continuation.resume(returning: .failure(error))
                }
            }
            // The person may take any time, so no thread of Swift's pool waits.
            do throws(Errno) {
                try WorkerThread.start("pick", work).detach()
            } catch {
                continuation.resume(returning: .failure(failure(error.description)))
            }
        }
        return try GrantedDirectory.of(try result.get())
    }

    /// Runs it and parses its output: a line for each grant.
    private static func ids(of arguments: [[UInt8]]) throws(GrantError) -> [GrantID] {
        let (status, text): (Int32, String)
        do throws(Errno) {
            let pipe = try PipePair()
            // It draws on the terminal, and prints to its standard output.
            let shell = ["sh", "-c", "exec \"$@\" >&3 3>&-", "sh"].map { Array($0.utf8) }
            let child = try ChildProcess.spawn("sh", arguments: shell + arguments, descriptors: [pipe.writing.number])
            let reading = pipe.closeWriting()
            var said: [UInt8] = []
            var buffer = [UInt8](repeating: 0, count: 4096)
            while true {
                let count = read(reading.number, &buffer, buffer.count)
                if count < 0, errno == EINTR { continue }
                if count <= 0 { break }
                said += buffer[..<count]
            }
            (status, text) = (try ChildProcess.wait(child), String(decoding: said, as: UTF8.self))
        } catch {
            throw failure(error.description)
        }
        // 1: nothing was chosen, or it has printed the reason.
        if status == 1 { return [] }
        guard status == 0 || status == 3 else { throw failure("grantfs pick ended with status \(status)") }
        return text.split(whereSeparator: \.isNewline).compactMap { GrantID($0) }
    }

    private static func failure(_ cause: String) -> GrantError {
        GrantError(.system, "nothing can be picked", cause: cause, advice: "the program grantfs has to be in PATH")
    }
}
