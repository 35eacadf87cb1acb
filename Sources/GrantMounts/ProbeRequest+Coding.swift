import GrantBookmarks
import GrantControl
import GrantModel
import GrantSystem

// Requests and answers as bytes, for the helper process. Both ends are the same program, so there is no version.

extension ProbeRequest: WireChoice {
    package static let cases: [WireCase<ProbeRequest>] = [
        WireCase(1, find) { if case .find(let bookmark, let held) = $0 { (bookmark, held) } else { nil } },
        WireCase(2, bookmark) { if case .bookmark(let path) = $0 { path } else { nil } },
        WireCase(3, canonical) { if case .canonical(let path) = $0 { path } else { nil } },
        WireCase(4, tag) { if case .tag(let bookmark, let tag) = $0 { (bookmark, tag) } else { nil } },
        WireCase(5, listing) { if case .listing(let path) = $0 { path } else { nil } },
        WireCase(6, links) { if case .links(let path, let names) = $0 { (path, names) } else { nil } },
        WireCase(7, document) { if case .document(let path, let form) = $0 { (path, form) } else { nil } },
    ]
}

extension ProbeAnswer: WireChoice {
    package static let cases: [WireCase<ProbeAnswer>] = [
        WireCase(1, found) { if case .found(let found) = $0 { found } else { nil } },
        WireCase(2, bookmarked) { if case .bookmarked(let named) = $0 { named } else { nil } },
        WireCase(3, canonical) { if case .canonical(let path) = $0 { path } else { nil } },
        WireCase(4, tagged) { if case .tagged(let before) = $0 { .some(before) } else { nil } },
        WireCase(5, failed) { if case .failed(let error) = $0 { error } else { nil } },
        WireCase(6, { .errno(Errno($0)) }) { if case .errno(let error) = $0 { error.rawValue } else { nil } },
        WireCase(7, { .unresponsive }) { if case .unresponsive = $0 { () } else { nil } },
        WireCase(8, listed) { if case .listed(let listing) = $0 { listing } else { nil } },
        WireCase(9, links) { if case .links(let names) = $0 { names } else { nil } },
    ]
}

extension FoundDirectory: WireRecord {
    package static let fields = WireFields(FoundDirectory.init(finding:path:isInTrash:copy:)) {
        ($0.finding, $0.path, $0.isInTrash, $0.copy)
    }
}

extension NamedDirectory: WireRecord {
    package static let fields = WireFields(NamedDirectory.init(bookmark:device:tag:)) { ($0.bookmark, $0.device, $0.tag) }
}

extension DirectoryListing: WireRecord {
    package static let fields = WireFields(DirectoryListing.init(path:directories:links:)) { ($0.path, $0.directories, $0.links) }
}

extension GrantError: WireRecord {
    package static let fields = WireFields({ (code: UInt8, message: String, cause: String?, advice: String?) throws(CodingFlaw) in
        guard code < Code.allCases.count else { throw .badValue }
        return GrantError(Code.allCases[Int(code)], message, cause: cause, advice: advice)
    }) { (UInt8(truncatingIfNeeded: Code.allCases.firstIndex(of: $0.code) ?? 0), $0.message, $0.cause, $0.advice) }
}

extension Bookmark: WireRecord {
    package static let fields = WireFields({ (bytes) throws(CodingFlaw) in try valid(try? Bookmark(encoded: bytes)) }) { $0.encoded() }
}

extension DirectoryTag: WireRecord {
    package static let fields = WireFields({ (bytes) throws(CodingFlaw) in try valid(DirectoryTag(bytes: bytes)) }) { $0.bytes }
}

extension DeviceNumber: WireRecord {
    package static let fields = WireFields(DeviceNumber.init(major:minor:)) { ($0.major, $0.minor) }
}

extension BookmarkFinding: WireValue {}
extension DocumentBookmark.Form: WireValue {}
