import GrantSystem
import Testing

@testable import GrantViewFS

@Suite struct ChangeBoundTests {
    @Test("Writes in any number of directories are remembered for 1,024 of them")
    func directories() {
        var busy = BusyDirectories()
        // Each directory is written twice within a millisecond, so that none is quiet.
        for turn in 0..<4 as Range<Int64> {
            for directory in 0..<20_000 as Range<UInt64> {
                var change = Change()
                (change.directory, change.file_key) = (directory, directory)
                _ = busy.isBusy(change, isOwn: false, now: 1_000_000_000 + turn)
                #expect(busy.count <= 1_024)
            }
        }
        var late = Change()
        late.directory = 30_000
        while let due = busy.takeDue(now: 2_000_000_000) { _ = due }
        let isLateBusy = busy.isBusy(late, isOwn: false, now: 2_000_000_000)
        #expect(!isLateBusy && busy.count == 1)
    }

    @Test("Changes beyond 16,384 are repeated as an invalidation of everything")
    func repeated() {
        var changes = RepeatedChanges()
        for node in 0..<40_000 as Range<UInt64> {
            changes.add(RepeatedChanges.Item(scope: 1, directory: node, name: [], file: nil), now: 1_000)
        }
        let due = changes.takeDue(now: 1_000_000_000)
        #expect(due.all && due.items.count < 16_384)
    }
}
