import Foundation
import GrantSystem
import Testing
import GrantViewTree

@Suite("The handle bases")
struct TheHandleBases {
    @Sendable private static func make() -> HandleBase? {
        guard let directory = try? FileDescriptor.open("/tmp".utf8, O_RDONLY | O_DIRECTORY) else { return nil }
        return HandleBase(directory)
    }

    @Test("are one for each mount, for as long as somebody uses it")
    func shared() throws {
        let bases = HandleBases()
        var first = bases.base(of: 1, Self.make)
        #expect(first != nil && bases.base(of: 1) { nil } === first)
        #expect(bases.base(of: 2, Self.make) !== first)
        first = nil
        #expect(bases.base(of: 1) { nil } == nil)
    }

    @Test("of a filesystem that hangs hold up nobody else's")
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
