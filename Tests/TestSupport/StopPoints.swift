import Foundation
import Glibc

/// Points at which `grantfs-faults` stops until the test lets it go on: `InjectedFault.stop`.
public struct StopPoints {
    private let fixture: MountFixture
    private let directory: String

    /// Sets the switch of the fixture, for programs that it starts from now on.
    public init(_ fixture: MountFixture) throws {
        self.fixture = fixture
        directory = try fixture.directory("stops")
        fixture.switches["GRANTFS_TEST_STOPS"] = directory
    }

    /// Makes the program stop at a point when it gets there, once.
    public func arm(_ point: String) { close(open("\(directory)/\(point).armed", O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)) }

    /// Waits until the program has stopped at a point.
    public func awaitStop(_ point: String) throws {
        try fixture.wait(until: "it has stopped at “\(point)”") { access("\(directory)/\(point).reached", F_OK) == 0 }
    }

    public func goOn(_ point: String) { unlink("\(directory)/\(point).reached") }
}
