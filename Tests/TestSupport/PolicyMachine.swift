import Foundation
import Glibc

/// A private view of this machine for the commands that it runs. It has its own users, groups and
/// policy, in a copy of /etc that no other process sees. Needs root.
public final class PolicyMachine {
    public let fixture: MountFixture
    /// A user in the group `staff`, with a home.
    public static let ann = Identity(uid: 61_001, gid: 61_001)
    /// A user in no other group, with a home.
    public static let ben = Identity(uid: 61_002, gid: 61_002)

    public init() throws {
        fixture = try MountFixture()
        let base = fixture.base
        try Command.shell(
            """
            # Another test may add a user, whose temporary files are gone before they are copied.
            until cp -a /etc "$1/etc"; do rm -r "$1/etc"; done
            rm -rf "$1/etc/grantfs"
            mkdir -p "$1/etc/grantfs/policy.d"
            chmod 755 "$1/etc/grantfs" "$1/etc/grantfs/policy.d"
            for user in ann:61001 ben:61002; do
                echo "${user%:*}:x:${user#*:}:${user#*:}::$1/home/${user%:*}:/bin/sh" >>"$1/etc/passwd"
                echo "${user%:*}:x:${user#*:}:" >>"$1/etc/group"
                mkdir -p "$1/home/${user%:*}/src" "$1/home/${user%:*}/.ssh"
                chown -R "${user#*:}:${user#*:}" "$1/home/${user%:*}"
            done
            echo "staff2:x:61010:ann" >>"$1/etc/group"
            mkdir -p "$1/srv/projects" "$1/srv/secret"
            chmod 777 "$1/srv/projects"
            """, base)
    }

    /// The directory of the policy's files.
    public var policies: String { fixture.base + "/etc/grantfs/policy.d" }

    public func home(_ identity: Identity) -> String { fixture.base + "/home/" + (identity == Self.ann ? "ann" : "ben") }

    /// Writes a policy file. `{}` is replaced by the fixture's directory.
    public func write(_ text: String, as name: String = "10-site.toml", mode: mode_t = 0o644, owner: Identity = .current) throws {
        let path = policies + "/" + name
        try Data(text.replacingOccurrences(of: "{}", with: fixture.base).utf8).write(to: URL(fileURLWithPath: path))
        guard chmod(path, mode) == 0, chown(path, owner.uid, owner.gid) == 0 else { throw TestFailure("\(path) cannot be prepared") }
    }

    /// Runs a command as `identity`, with the groups of the group file. `script`: shell text that
    /// root runs first in the namespace.
    public func run(_ words: [String], as identity: Identity = .current, script: String = "true", store: String? = nil) throws -> Output {
        try Command.run(command(words, as: identity, script: script, store: store))
    }

    /// The command line of `run`, for tests that start it in another way.
    public func command(_ words: [String], as identity: Identity = .current, script: String = "true", store: String? = nil) -> [String] {
        let home = identity.uid == 0 ? "/root" : home(identity)
        let store = store ?? (identity.uid == 0 ? fixture.store : home + "/store")
        let who = identity.uid == 0 ? [] : ["setpriv", "--reuid=\(identity.uid)", "--regid=\(identity.gid)", "--init-groups", "--"]
        return [
            "unshare", "-m", "sh", "-euc", "mount --bind \"$1/etc\" /etc; eval \"$2\"; shift 2; exec \"$@\"", "sh", fixture.base, script,
        ] + who + ["env", "HOME=\(home)", "GRANTFS_STORE=\(store)"] + words
    }

    public func grantfs(_ words: String..., as identity: Identity = .current, script: String = "true") throws -> Output {
        // The copy of grantfs that every user may run.
        try run([Programs.grantfs(for: Self.ann)] + words, as: identity, script: script)
    }
}
