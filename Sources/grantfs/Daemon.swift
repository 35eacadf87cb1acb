import GrantModel
import GrantStore

enum Daemon {
    static func run(
        store: GrantStore, view: ViewName, mountpoint: String, options: MountOptions, ready: (GrantError?) -> Void
    ) -> Int32 { 1 }
}
