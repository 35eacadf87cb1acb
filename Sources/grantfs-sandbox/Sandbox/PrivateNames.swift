import GrantModel
import GrantSystem

/// Names below a home that no proposed profile shows: keys, credentials, histories, browsers, startup files of shells.
enum PrivateNames {
    private static let keys = words(
        """
        .ssh .gnupg .pki .password-store .netrc .git-credentials .pgpass .my.cnf .mylogin.cnf .vault-token .aws .azure .kube .docker
        .oci .s3cfg .boto .config/gcloud .config/gh .config/hub .config/glab-cli .config/op .config/rclone .config/doctl .config/sops
        .config/containers .config/helm .config/git .local/share/keyrings .local/share/kwalletd .local/share/pki .kde .electrum .bitcoin
        .ethereum .config/Bitwarden .config/1Password .config/keepassxc .config/KeePass .config/age .cargo/credentials
        .cargo/credentials.toml .npmrc .yarnrc .yarnrc.yml .pypirc .gem/credentials .m2/settings.xml .m2/settings-security.xml
        .gradle/gradle.properties .terraform.d .terraformrc .composer/auth.json .config/composer/auth.json .nuget/NuGet
        .config/NuGet .Xauthority .ICEauthority .config/pulse .config/github-copilot .claude .claude.json .codex .gemini
        .config/opencode .local/share/opencode .config/Code .config/Cursor .cursor .config/JetBrains .config/evolution
        """)
    private static let browsers = words(
        """
        .mozilla .thunderbird .config/google-chrome .config/google-chrome-beta .config/chromium .config/BraveSoftware .config/vivaldi
        .config/opera .config/microsoft-edge .config/epiphany .config/falkon .config/qutebrowser .config/librewolf .librewolf .tor-browser
        .local/share/epiphany .local/share/falkon .local/share/qutebrowser .local/share/evolution .config/Signal .config/Slack
        .config/discord .config/Element .cache/mozilla .cache/thunderbird .cache/google-chrome .cache/chromium .cache/BraveSoftware
        .cache/vivaldi .cache/microsoft-edge .cache/epiphany .cache/librewolf .var/app .snap snap
        """)
    private static let shells = words(
        """
        .profile .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .bash_history .zshrc .zshenv .zprofile .zlogin .zlogout
        .zsh_history .kshrc .cshrc .tcshrc .login .logout .history .inputrc .config/fish .local/share/fish .python_history .node_repl_history
        .psql_history .mysql_history .sqlite_history .lesshst .viminfo .xprofile .xinitrc .xsession .xsessionrc .config/autostart
        .config/systemd .config/environment.d
        """)
    private static let own = words(".config/grantfs .local/share/grantfs")

    private static let all = [
        (keys, "it may hold keys or credentials"),
        (browsers, "it belongs to a browser, a mail program or an application with its own sandbox"),
        (shells, "a shell or the login obeys it, or it is a history of commands"), (own, "grantfs itself obeys it"),
    ]

    /// Directories with keys, in copies of homes as well.
    private static let anywhere = [
        ".ssh", ".ssh2", ".gnupg", ".aws", ".kube", ".docker", ".password-store", ".mozilla", ".git", ".npmrc", "npmrc",
    ].map {
        Array($0.utf8)
    }

    /// Parts of the names of files with keys, in lower case.
    private static let telling = [
        "credential", "secret", "passw", "token", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "cookie", "history", "wallet", "netrc",
        "pgpass",
        "authinfo", "auth.",
    ]
    private static let endings = [".pem", ".key", ".kdbx", ".p12", ".pfx", ".keystore", ".jks", ".gpg", ".age"]

    /// Returns why a name is not shown, for people, or nil. `names`: its components below the home.
    static func reason(_ names: [[UInt8]]) -> String? {
        let lower = names.map { lowered($0) }
        for (list, reason) in all where list.contains(where: { lower.starts(with: $0) }) { return reason }
        if lower.contains(where: { name in anywhere.contains { name == $0 } }) { return "it may hold keys or credentials" }
        return lower.contains(where: tells) ? "its name is that of a key or a credential" : nil
    }

    /// Whether such a name may be below a directory, by the lists.
    static func areBelow(_ names: [[UInt8]]) -> Bool {
        let lower = names.map { lowered($0) }
        return all.contains { list, _ in list.contains { $0.starts(with: lower) } }
    }

    /// Whether one component is by itself the name of a key.
    static func tells(_ name: [UInt8]) -> Bool {
        let text = String(decoding: lowered(name), as: UTF8.self)
        return text == ".env" || text.hasPrefix(".env.") || telling.contains { text.contains(part: $0) }
            || endings.contains { text.hasSuffix($0) }
    }

    private static func lowered(_ name: [UInt8]) -> [UInt8] {
        name.map { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) ? $0 | 0x20 : $0 }
    }

    private static func words(_ text: String) -> [[[UInt8]]] {
        text.split(whereSeparator: \.isWhitespace).map { word in
            word.utf8.split(separator: UInt8(ascii: "/")).map { lowered(Array($0)) }
        }
    }
}
