import Foundation
import TestSupport
import Testing

@testable import GrantKit

@Suite(.serialized) struct DescriptorTests {
    private func open() throws -> Int { try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count }

    @Test("Coordinators that are kept hold no descriptors")
    func keptCoordinators() throws {
        let bench = try Bench()
        let url = try bench.plain("folder")
        try bench.programWithoutStore {
            let before = try open()
            var kept: [NSFileCoordinator] = []
            for _ in 0..<300 {
                let coordinator = NSFileCoordinator()
                coordinator.coordinate(readingItemAt: url, error: nil) { _ in }
                kept.append(coordinator)
            }
            // Other tests of this process open files meanwhile.
            #expect(try open() - before < 150, "\(kept.count) coordinators")
        }
    }
}
