import GrantCommandSupport
import Glibc
import GrantSystem

/// Checks whether `grantfs run` can work here.
enum SandboxChecks {
    static func run() -> [Finding] {
        guard let path = ProgramSearch.bubblewrap else {
            return [.note("bubblewrap", "without bubblewrap, grantfs run does not work", "install the package bubblewrap")]
        }
        // The namespaces of a sandbox, without contents.
        let words = [
            "bwrap", "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
            "true",
        ]
        do {
            let child = try ChildProcess.spawn(.path(path), arguments: words.map { Array($0.utf8) }, silent: true)
            if try ChildProcess.wait(child) == 0 { return [.ok("bubblewrap", "\(path) can make a sandbox")] }
        } catch {
            return [.problem("bubblewrap", "\(path) cannot be started: \(error)", "reinstall the package bubblewrap")]
        }
        return [.problem("bubblewrap", "\(path) cannot make a sandbox: grantfs run does not work", advice)]
    }

    private static var advice: String {
        if File.line(of: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
            return "AppArmor restricts user namespaces: give bwrap a profile with “userns,”, as docs/guides/containers.md shows"
        }
        if File.line(of: "/proc/sys/kernel/unprivileged_userns_clone") == "0" { return "sysctl kernel.unprivileged_userns_clone=1" }
        if File.line(of: "/proc/sys/user/max_user_namespaces") == "0" { return "sysctl user.max_user_namespaces=10000" }
        return
            "bubblewrap 0.8 or later is needed, and a container must allow user namespaces and mounting /proc. "
            + "“bwrap --unshare-all --unshare-user --disable-userns --ro-bind / / true” prints the reason"
    }
}
