import Foundation
import TestSupport
import Testing

@testable import GrantKit

@Suite struct ErrorTests {
    private func check(_ error: any Error) throws {
        let shown = try #require(error as? any LocalizedError)
        for text in [shown.errorDescription, shown.failureReason, shown.recoverySuggestion, error.localizedDescription] {
            let text = try #require(text)
            #expect(text.hasSuffix(".") && !text.contains("grantfs ") && !text.contains("--"), "“\(text)”")
        }
        #expect(error.localizedDescription == shown.errorDescription)
    }

    @Test(
        "Every grant error has a description, a reason and a suggestion without a command",
        arguments: GrantError.Code.allCases)
    func grantErrors(code: GrantError.Code) throws {
        try check(GrantError(code, "it cannot be used"))
        try check(GrantError(code, "grantfs pick has ended", cause: "it needs --desktop", advice: "grantfs mount"))
    }

    @Test("Every coordination error has a description, a reason and a suggestion")
    func coordinationErrors() throws {
        let all: [CoordinationError] = [
            .outside([]), .revoked([]), .noMount, .deadlock, .timedOut, .cancelled, .daemonDied(mountpoint: []), .failed("it broke"),
        ]
        for error in all {
            try check(error)
            let shown = CocoaError.error(error, url: nil, isWriting: true)
            #expect(!shown.localizedDescription.isEmpty && shown.localizedFailureReason != nil && shown.localizedRecoverySuggestion != nil)
        }
    }

    @Test("Each code of a grant error has the Cocoa code that the documentation gives")
    func codes() {
        let table: [GrantError.Code: CocoaError.Code] = [
            .permission: .fileReadNoPermission, .notFound: .fileNoSuchFile, .invalidDirectory: .fileNoSuchFile,
            .invalidBookmark: .fileReadCorruptFile, .invalidFile: .fileReadCorruptFile, .usage: .fileReadUnsupportedScheme,
            .unsupported: .featureUnsupported, .alreadyExists: .fileWriteFileExists,
        ]
        for code in GrantError.Code.allCases {
            #expect(CocoaError(GrantError(code, "it cannot be used")).code == table[code] ?? .fileReadUnknown, "\(code)")
        }
        #expect(CocoaError(GrantError(.notFound, "it is not there"), isMaking: true).code == .fileReadNoSuchFile)
    }

    @Test("A missing store is not reported as a missing directory")
    func missingStore() throws {
        let bench = try Bench()
        let url = try bench.granted("docs")
        let data = try bench.program { try url.bookmarkData(options: .withSecurityScope) }
        bench.programWithoutStore {
            #expect(bench.failure(data) == .fileReadUnknown)
            #expect(cocoaCode { _ = try url.bookmarkData(options: .withSecurityScope) } == .fileReadUnknown)
        }
    }

    private static let coordinationCodes: [(error: CoordinationError, reading: CocoaError.Code, writing: CocoaError.Code)] = [
        (.cancelled, .userCancelled, .userCancelled), (.revoked([]), .fileReadNoPermission, .fileWriteNoPermission),
        (.deadlock, .fileLocking, .fileLocking), (.timedOut, .fileLocking, .fileLocking),
        (.outside([]), .fileReadNoSuchFile, .fileNoSuchFile), (.noMount, .fileReadUnknown, .fileWriteUnknown),
        (.daemonDied(mountpoint: []), .fileReadUnknown, .fileWriteUnknown), (.failed("it broke"), .fileReadUnknown, .fileWriteUnknown),
    ]

    @Test("Each coordination error has the codes that the documentation gives")
    func coordinationCodes() throws {
        let names: [CocoaError.Code: String] = [
            .userCancelled: "userCancelled", .fileReadNoPermission: "fileReadNoPermission", .fileWriteNoPermission: "fileWriteNoPermission",
            .fileLocking: "fileLocking", .fileReadNoSuchFile: "fileReadNoSuchFile", .fileNoSuchFile: "fileNoSuchFile",
            .fileReadUnknown: "fileReadUnknown", .fileWriteUnknown: "fileWriteUnknown",
        ]
        let numbers = [
            EACCES: "EACCES", ECANCELED: "ECANCELED", EDEADLK: "EDEADLK", EIO: "EIO", ENOENT: "ENOENT", ENOTCONN: "ENOTCONN",
            ETIMEDOUT: "ETIMEDOUT",
        ]
        let page = try #require(
            URL(fileURLWithPath: #filePath).deletingLastPathComponent()
                .appendingPathComponent("../../Sources/GrantKit/GrantKit.docc/CoordinatingFileAccess.md").text)
        for (error, reading, writing) in Self.coordinationCodes {
            let (read, write) = (CocoaError.error(error, url: nil, isWriting: false), CocoaError.error(error, url: nil, isWriting: true))
            #expect(read.domain == NSCocoaErrorDomain && read.code == reading.rawValue && write.code == writing.rawValue, "\(error)")
            #expect(read.userInfo[NSUnderlyingErrorKey] as? CoordinationError == error)
            let codes = reading == writing ? "`\(names[reading] ?? "")`" : "`\(names[reading] ?? "")`, `\(names[writing] ?? "")`"
            let name =
                "\(error)".isEmpty ? "" : String(describing: Mirror(reflecting: error).children.first?.label ?? Self.plainName(error))
            #expect(page.contains("| `.\(name)`, \(numbers[error.errno] ?? "") | \(codes) |"), "\(name): \(codes)")
        }
    }

    private static func plainName(_ error: CoordinationError) -> String {
        switch error {
        case .noMount: "noMount"
        case .deadlock: "deadlock"
        case .timedOut: "timedOut"
        case .cancelled: "cancelled"
        case .outside, .revoked, .daemonDied, .failed: ""
        }
    }
}
