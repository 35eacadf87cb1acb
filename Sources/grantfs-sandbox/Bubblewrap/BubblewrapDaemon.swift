import GrantAdministration
import GrantCommandLine
import GrantModel
import GrantSystem

/// The daemon of a sandbox's view, which is started while the command line is still being examined.
struct BubblewrapDaemon {
    /// The store's directory, which need not exist.
    let store: String
    let label: String
    /// The command for which the view is mounted, for people.
    let command: String
    /// nil if it could not be started in advance.
    let waiting: BackgroundStart.Waiting?

    init(_ line: BubblewrapLine, store: String) {
        (self.store, label, command) = (store, TemporaryMount.newLabel(), RunCommand.text(of: line.command))
        let place = String(decoding: CanonicalPath.resolveWhatExists(Array(store.utf8)), as: UTF8.self)
        let words = RunCommand.words(
            label, TemporaryMount.file(label: label, hasOwnView: true), store: place, at: place + "/run/" + label, isAudited: false,
            isBound: true)
        let program = try? CompanionProgram.daemon.file()
        waiting = program.flatMap { [command] in try? BackgroundStart.Waiting($0, words: words, for: command) }
    }
}
