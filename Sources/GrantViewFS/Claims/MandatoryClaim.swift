import GrantCoordinator

/// A claim that binds every operation through the mount.
public struct MandatoryClaim: Sendable {
    public let id: UInt64
    /// The holder: this process and its descendants pass.
    public let process: Int32
    public let parts: [(target: ClaimTarget, access: ItemAccess)]
    /// How long an operation waits for it, in nanoseconds. nil means until it ends.
    public let patience: Int64?

    public init(id: UInt64, process: Int32, parts: [(target: ClaimTarget, access: ItemAccess)], patience: Int64?) {
        self.id = id
        self.process = process
        self.parts = parts
        self.patience = patience
    }
}
