import Foundation
import GrantSystem
import Testing
import GrantViewTree

@Suite("Handle bases")
struct TheHandleBases {
    @Sendable private static func make() -> HandleBase? {
        guard let directory = try? FileDescriptor.open("/tmp".utf8, O_RDONLY | O_DIRECTORY) else { return nil }
        return HandleBase(directory)
    }

    @Test("A mount has one handle base while it is in use")
    func shared() throws {
        let bases = HandleBases()
        var first = bases.base(of: 1, Self.make)
        #expect(first != nil && bases.base(of: 1) { nil } === first)
        #expect(bases.base(of: 2, Self.make) !== first)
        first = nil
        #expect(bases.base(of: 1) { nil } == nil)
    }

    @Test("A hanging filesystem delays no handle base of another")
    func hanging() {
        let bases = HandleBases()
        let (isHanging, goOn, isMade) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        Thread.detachNewThread {
            _ = bases.base(of: 1) {
                isHanging.signal()
                goOn.wait()
                return nil
            }
        }
        isHanging.wait()
        Thread.detachNewThread {
            if bases.base(of: 2, Self.make) != nil { isMade.signal() }
        }
        #expect(isMade.wait(timeout: .now() + 60) == .success)
        goOn.signal()
    }
}
