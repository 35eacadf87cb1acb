import GrantModel

extension ControlRequest: WireMessage {
    package static let cases: [WireCase<ControlRequest>] = [
        WireCase(1, { .apply(grants: $1, timeoutMilliseconds: $0) }) {
            if case .apply(let ids, let time) = $0 { (time, ids) } else { nil }
        },
        WireCase(2, .status),
        WireCase(3, .ping),
        WireCase(4, .unmount),
        WireCase(5, { .release(grants: $1, timeoutMilliseconds: $0) }) {
            if case .release(let ids, let time) = $0 { (time, ids) } else { nil }
        },
        WireCase(6, { .shut(grants: $1, timeoutMilliseconds: $0) }) { if case .shut(let ids, let time) = $0 { (time, ids) } else { nil } },
        WireCase(7, locate) { if case .locate(let grants) = $0 { grants } else { nil } },
        WireCase(8, .session),
        WireCase(9, progress) { if case .progress(let grants) = $0 { grants } else { nil } },
        WireCase(10, waits) { if case .waits(let claimant) = $0 { claimant } else { nil } },
        WireCase(11, .handOver),
        WireCase(16, .metrics),
        WireCase(17, { .questions(after: $0, timeoutMilliseconds: $1) }) {
            if case .questions(let last, let time) = $0 { (last, time) } else { nil }
        },
    ]
}
