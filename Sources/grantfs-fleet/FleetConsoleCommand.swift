import GrantCommandLine
import GrantCommandSupport
import GrantFleet
import GrantFleetConsole
import Glibc
import GrantAdministration
import GrantModel
import GrantStore
import GrantSystem

/// `fleet console`
enum FleetConsoleCommand {
    static func run(_ arguments: ParsedArguments) throws(GrantError) -> Int32 {
        var settings = try place(try arguments.text("listen") ?? "127.0.0.1:9460")
        settings.names = try arguments.texts("name")
        settings.certificate = try arguments.contents("certificate")
        settings.key = try arguments.privateKey()
        settings.authorities = try arguments.contents("client-ca")
        guard (settings.certificate == nil) == (settings.key == nil) else {
            throw GrantError(.usage, "fleet console: --certificate and --key go together")
        }
        if settings.authorities != nil, settings.certificate == nil {
            throw GrantError(.usage, "fleet console: --client-ca needs TLS", advice: "--certificate FILE --key FILE")
        }
        let chosen = try arguments.text("token-file").map { file throws(GrantError) in try token(in: file) }
        settings.token = chosen ?? (settings.authorities == nil ? FleetCredentials.password() : nil)
        // Checks that there is a fleet before the first page is requested.
        _ = try arguments.openFleet()
        let waits = signals()
        let console = try FleetConsole(settings) { who throws(GrantError) in
            var actor = Actor.current()
            if !who.isEmpty { actor.program = "grantfs fleet console, for \(who)" }
            return try arguments.openFleet(actor)
        } log: { text in
            Terminal.note("console: " + text)
        }
        try console.run {
            () throws(GrantError) in
            // A browser sends nothing after the hash sign to the server.
            let secret = chosen == nil ? settings.token.map { "#token=\($0)" } ?? "" : ""
            try Terminal.print(console.address + secret)
            ServiceManager.ready("the console is served at \(console.address)")
        } wait: {
            var signals = waits
            while sigwaitinfo(&signals, nil) < 0, errno == EINTR {}
        }
        return 0
    }

    /// Blocks signals before there are threads, so that none of them gets one.
    private static func signals() -> sigset_t {
        signal(SIGPIPE, SIG_IGN)
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&signals, number) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        return signals
    }

    /// `127.0.0.1:9460`, `[::1]:9460`, `localhost:9460`.
    private static func place(_ text: String) throws(GrantError) -> ConsoleSettings {
        let flaw = GrantError(
            .usage, "invalid address “\(text)” for --listen",
            advice: "--listen ADDRESS:PORT, such as 127.0.0.1:9460 or [::1]:9460")
        guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[text.index(after: colon)...]) else { throw flaw }
        var address = String(text[..<colon])
        if address.hasPrefix("["), address.hasSuffix("]") {
            address = String(address.dropFirst().dropLast())
        } else if address.contains(":") {
            throw flaw
        }
        if address == "localhost" { address = "127.0.0.1" }
        if address.isEmpty { throw flaw }
        return ConsoleSettings(address: address, port: port)
    }

    private static func token(in file: String) throws(GrantError) -> String {
        let bytes: [UInt8]
        do throws(Errno) {
            bytes = try PrivateFile.read(file)
        } catch {
            guard error == Errno(EPERM) else { throw GrantError(.system, "\(file) cannot be read", cause: error.description) }
            throw GrantError(
                .permission, "\(file) is not used", cause: "it is not this user's, or others may read it", advice: "chown it, and chmod 600"
            )
        }
        let line = bytes.prefix { $0 != 0x0A && $0 != 0x0D }
        guard line.count >= FleetConsole.shortestToken, line.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
            throw GrantError(
                .usage, "\(file) has no token that is good enough",
                cause: "its first line must have \(FleetConsole.shortestToken) characters or more, letters, digits and signs",
                advice: "openssl rand -hex 32 makes one")
        }
        return String(decoding: line, as: UTF8.self)
    }
}
