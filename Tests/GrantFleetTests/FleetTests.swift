import TestSupport
import Testing

/// Fleets of several hosts on this machine, with a real etcd, real agents and real mounts.
@Suite(
    .enabled(if: EtcdServers.isInstalled, "\(EtcdServers.isMissing)"), .enabled(if: Machine.hasFUSE, "\(Machine.noFUSE)"))
enum GrantFleetTests {}
