import GrantModel

extension LogEntry {
    /// The entry for files that programs made beside a document: where they are kept.
    public static func keeping(_ path: [UInt8], of grant: Grant?, in view: ViewName, by actor: Actor) -> LogEntry {
        LogEntry(
            time: GrantStore.now, event: .changed, actor: actor, view: view, grant: grant?.id, name: grant?.name,
            detail: "what programs made beside the document is kept there", path: path)
    }

    /// Where files made beside a document are kept. It is nil for other entries.
    public var keptPath: [UInt8]? { event == .changed ? path : nil }
}
