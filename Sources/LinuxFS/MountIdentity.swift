import CLinux

/// One mount, told from those that come later, also from one that takes its place and its number.
public struct MountIdentity: Sendable, Equatable {
    /// Never used again, see statx(2), STATX_MNT_ID_UNIQUE; nil before Linux 6.8.
    private let number: UInt64?
    /// What the mount table said of it.
    private let entry: MountEntry?

    /// The mount that the descriptor's file was reached through; its filesystem is not asked.
    public init(of descriptor: borrowing FileDescriptor) {
        var number: UInt64 = 0
        let isKnown = clinux_unique_mount_id(descriptor.number, &number) == 0
        self.number = isKnown ? number : nil
        let status = isKnown ? nil : try? descriptor.status()
        entry = status.flatMap { status in try? MountTable.current().entry(id: status.mount_id) }
    }

    /// A mount that is known from the table alone.
    public init(_ entry: MountEntry) {
        number = nil
        self.entry = entry
    }

    /// Whether it is still there. Without its own number a mount counts as the same when it has the same id, place and device.
    public func isMounted(in table: MountTable) -> Bool {
        if let number {
            let there = clinux_has_mount(number)
            if there >= 0 { return there == 1 }
        }
        guard let entry else { return number != nil }
        let now = table.entry(id: entry.id)
        return now?.mountpoint == entry.mountpoint && now?.major == entry.major && now?.minor == entry.minor
    }
}
