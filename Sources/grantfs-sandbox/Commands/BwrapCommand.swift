import Glibc
import GrantAdministration
import GrantCommandLine
import GrantCommandSupport
import GrantModel
import GrantStore
import GrantSystem

/// `grantfs bwrap`
enum BwrapCommand {
    /// The first word of a command line that bubblewrap gets as it is.
    private static let noGrants = Array("--no-grants".utf8)
    /// The first word that a script called bwrap adds, so that `--help` as the next one is bubblewrap's.
    private static let link = Array("--link".utf8)

    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        // Before anything is added to it.
        let variables = environment
        let bubblewrap = try BubblewrapProgram()
        let operands = arguments.operands.first == link ? Array(arguments.operands.dropFirst()) : arguments.operands
        if operands.first == noGrants { try bubblewrap.become(Array(operands.dropFirst()), variables) }
        let line = try BubblewrapLine(operands) { (name) throws(GrantError) in try bubblewrap.valueCount(of: name) }
        if line.asksForText || line.command.isEmpty { try bubblewrap.become(words(of: line.options) + line.command, variables) }
        let directory = try arguments.storeDirectory()
        var binds = try BubblewrapBinds(store: directory)
        let candidates = binds.isInSandbox ? 0 : binds.countCandidates(line)
        // While there is one thread: with more, the kernel waits for an RCU grace period before a descriptor table can grow.
        DescriptorTable.grow()
        // A source in another one is passed as a descriptor, where that is possible.
        if candidates > 1 { bubblewrap.readHelp() }
        let daemon = candidates > 0 ? BubblewrapDaemon(line, store: directory) : nil
        if !binds.isInSandbox { try binds.read(line) }
        if !binds.granted.isEmpty {
            // A link can lead from a directory of the system to a person's files.
            let daemon = daemon ?? BubblewrapDaemon(line, store: directory)
            try BubblewrapSession(line, binds, daemon).become(bubblewrap, variables)
        }
        var plain = BubblewrapArguments(line)
        try binds.prepare(&plain, bubblewrap)
        for (index, place) in binds.showingStore where binds.hasStore { plain.add(BubblewrapArguments.cover(place), after: index) }
        let (words, descriptors) = try plain.words(command: line.command)
        try bubblewrap.become(words, variables, descriptors)
    }

    private static func words(of options: [BubblewrapLine.Option]) -> [[UInt8]] { options.flatMap { [Array($0.name.utf8)] + $0.values } }

    private static var environment: [[UInt8]] {
        var variables: [[UInt8]] = []
        var next = environ
        while let entry = next.pointee {
            variables.append(UnsafeBufferPointer(start: entry, count: strlen(entry)).map { UInt8(bitPattern: $0) })
            next += 1
        }
        return variables
    }
}
