import GrantModel

/// A request of an unprivileged user about root's store, on the socket of `grantfs-system.socket`.
struct SystemRequest {
    enum Kind: UInt8 {
        case list = 1
        case revoke = 2
        case restore = 3
    }

    /// The directory and name of the socket. Root owns the directory.
    static let directory = "/run/grantfs"
    static let name = "system.sock"
    /// The maximum size of a request.
    static let largest = 64 << 10

    let kind: Kind
    let view: ViewName?
    /// The grants to be revoked or restored.
    let selectors: [[UInt8]]
    let timeoutMilliseconds: UInt32

    init(_ kind: Kind, view: ViewName?, selectors: [[UInt8]] = [], timeout: Double) {
        (self.kind, self.view, self.selectors) = (kind, view, selectors)
        timeoutMilliseconds = UInt32(min(max(timeout * 1000, 0), 60_000))
    }

    var bytes: [UInt8] {
        var writer = BinaryWriter()
        writer.write(kind.rawValue)
        writer.write(view?.description ?? "")
        writer.write(timeoutMilliseconds)
        writer.write(UInt16(clamping: selectors.count))
        for selector in selectors.prefix(Int(UInt16.max)) { writer.write(selector) }
        return writer.bytes
    }

    /// The result is nil if invalid.
    init?(_ bytes: [UInt8]) {
        var reader = BinaryReader(bytes[...])
        guard let code = try? reader.read(UInt8.self), let kind = Kind(rawValue: code), let name = try? reader.readString(),
            let time = try? reader.read(UInt32.self), time <= 60_000, let count = try? reader.read(UInt16.self)
        else { return nil }
        var selectors: [[UInt8]] = []
        for _ in 0..<count {
            guard let selector = try? reader.readBytes() else { return nil }
            selectors.append(selector)
        }
        let view = try? ViewName(name)
        if view == nil, !name.isEmpty { return nil }
        (self.kind, self.view, self.selectors, timeoutMilliseconds) = (kind, view, selectors, time)
    }
}
