import GrantCommandLine
import GrantCommandSupport
import GrantControl
import GrantModel
import GrantStore

/// The metrics of mounts, as OpenMetrics.
enum MountMetricsText {
    typealias Mount = (record: MountRecord, metrics: MountMetrics?)

    /// `more`: adds other metrics of this machine.
    static func text(of mounts: [Mount], more: (inout OpenMetrics) -> Void = { _ in }) -> String {
        var text = OpenMetrics()
        text.begin("grantfs_build", .info, "The program that says this.")
        text.add("grantfs_build_info", [("version", ProgramDeclaration.version)], 1)
        text.begin("grantfs_up", .gauge, "Whether the daemon of a mount answers.")
        for mount in mounts { text.add("grantfs_up", labels(mount.record), mount.metrics == nil ? 0 : 1) }
        let live = mounts.compactMap { mount in mount.metrics.map { (labels: labels(mount.record), record: mount.record, metrics: $0) } }
        text.begin("grantfs_mount_start_time_seconds", .gauge, unit: "seconds", "When the view was mounted, since 1970.")
        for mount in live { text.add("grantfs_mount_start_time_seconds", mount.labels, seconds: mount.record.since.nanoseconds) }

        let numbers: [(String, OpenMetrics.Kind, String?, String, (MountMetrics) -> UInt64)] = [
            ("grantfs_inodes", .gauge, nil, "Inodes that the kernel knows.", { $0.status.inodes }),
            (
                "grantfs_descriptors", .gauge, nil, "Descriptors that the daemon has open for nodes, files and directories.",
                { $0.status.descriptors }
            ),
            ("grantfs_waiting_locks", .gauge, nil, "Requests for a lock that wait for another one.", { $0.waitingLocks }),
            (
                "grantfs_waiting_for_claims", .gauge, nil, "Requests below mandatory grants that wait for a claim to end.",
                { $0.waitingForClaims }
            ),
            ("grantfs_workers", .gauge, nil, "Threads that serve requests or are ready to.", { $0.workers }),
            ("grantfs_read_bytes", .counter, "bytes", "Read from granted files, the kernel's readahead included.", { $0.readBytes }),
            ("grantfs_written_bytes", .counter, "bytes", "Written to granted files.", { $0.writtenBytes }),
        ]
        for (name, kind, unit, help, value) in numbers {
            text.begin(name, kind, unit: unit, help)
            for mount in live { text.add(kind == .counter ? name + "_total" : name, mount.labels, value(mount.metrics)) }
        }
        text.begin(
            "grantfs_idle_polling_seconds", .counter, unit: "seconds",
            "For how long idle processors were kept from halting, as requests came quickly.")
        for mount in live {
            text.add("grantfs_idle_polling_seconds_total", mount.labels, seconds: Int64(clamping: mount.metrics.idlePollingNanoseconds))
        }
        addRequests(live.map { ($0.labels, $0.metrics) }, to: &text)
        addGrants(live.map { ($0.labels, $0.metrics) }, to: &text)
        addWithdrawals(live.map { ($0.labels, $0.metrics) }, to: &text)
        more(&text)
        text.end()
        return text.text
    }

    private typealias Live = (labels: OpenMetrics.Labels, metrics: MountMetrics)

    private static func addRequests(_ mounts: [Live], to text: inout OpenMetrics) {
        text.begin("grantfs_requests", .counter, "Requests of the kernel, by kind.")
        for mount in mounts {
            for request in mount.metrics.status.requests {
                text.add("grantfs_requests_total", mount.labels + [("kind", RequestName.of(request.opcode))], request.count)
            }
        }
        text.begin(
            "grantfs_request_duration_seconds", .histogram, unit: "seconds",
            "How long requests took, in a sample of each kind.")
        for mount in mounts {
            for timing in mount.metrics.timings {
                text.add("grantfs_request_duration_seconds", mount.labels + [("kind", RequestName.of(timing.opcode))], timing.durations)
            }
        }
    }

    private static func addGrants(_ mounts: [Live], to text: inout OpenMetrics) {
        let families: [(String, String, (GrantStatus) -> UInt64)] = [
            ("grantfs_grant_active", "Whether the grant can be reached.", { $0.state == .active ? 1 : 0 }),
            ("grantfs_grant_inodes", "Inodes of the grant that the kernel knows.", { $0.inodes }),
            ("grantfs_grant_in_flight", "Operations under way on the grant.", { $0.inFlight }),
        ]
        for (name, help, value) in families {
            text.begin(name, .gauge, help)
            for mount in mounts {
                for grant in mount.metrics.status.grants { text.add(name, mount.labels + labels(grant.id, grant.name), value(grant)) }
            }
        }
        let counters: [(String, String?, String, (GrantTraffic) -> UInt64)] = [
            ("grantfs_grant_operations", nil, "Operations on the grant that were let in, since it was made active.", { $0.operations }),
            ("grantfs_grant_read_bytes", "bytes", "Read of the grant's files, since it was made active.", { $0.readBytes }),
            ("grantfs_grant_written_bytes", "bytes", "Written to the grant's files, since it was made active.", { $0.writtenBytes }),
        ]
        for (name, unit, help, value) in counters {
            text.begin(name, .counter, unit: unit, help)
            for mount in mounts {
                for grant in mount.metrics.status.grants {
                    text.add(name + "_total", mount.labels + labels(grant.id, grant.name), value(grant.traffic))
                }
            }
        }
        text.begin("grantfs_denials", .counter, "Operations on the grant that were refused.")
        for mount in mounts {
            for denial in mount.metrics.denials {
                text.add("grantfs_denials_total", mount.labels + labels(denial.grant, denial.name), denial.count)
            }
        }
    }

    private static func addWithdrawals(_ mounts: [Live], to text: inout OpenMetrics) {
        let kinds: [(String, (MountMetrics) -> WithdrawalCounts)] = [("revocation", { $0.revocations }), ("narrowing", { $0.narrowings })]
        text.begin(
            "grantfs_withdrawal_duration_seconds", .histogram, unit: "seconds",
            "How long it took until nothing that was withdrawn could be reached any more.")
        for mount in mounts {
            for (kind, counts) in kinds {
                text.add("grantfs_withdrawal_duration_seconds", mount.labels + [("kind", kind)], counts(mount.metrics).durations)
            }
        }
        text.begin("grantfs_withdrawal_flushed_bytes", .counter, unit: "bytes", "Brought to the granted files by withdrawals.")
        for mount in mounts {
            for (kind, counts) in kinds {
                text.add("grantfs_withdrawal_flushed_bytes_total", mount.labels + [("kind", kind)], counts(mount.metrics).flushedBytes)
            }
        }
        text.begin("grantfs_withdrawal_released_operations", .counter, "Operations released because their filesystem hung.")
        for mount in mounts {
            for (kind, counts) in kinds {
                text.add("grantfs_withdrawal_released_operations_total", mount.labels + [("kind", kind)], counts(mount.metrics).released)
            }
        }
    }

    /// The pid distinguishes two mounts at one path.
    private static func labels(_ record: MountRecord) -> OpenMetrics.Labels {
        [
            ("view", record.view.description), ("mountpoint", String(decoding: record.mountpoint, as: UTF8.self)),
            ("pid", String(record.pid)),
        ]
    }

    private static func labels(_ id: GrantID, _ name: GrantName) -> OpenMetrics.Labels {
        [("grant", id.description), ("name", name.description)]
    }
}
