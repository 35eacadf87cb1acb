import GrantModel

/// What is to be granted, as somebody has declared it: of each view that is named, all of its grants.
public struct DeclaredState: Sendable {
    public struct Item: Sendable {
        public let view: ViewName
        /// nil: the directory's own.
        public let name: GrantName?
        public let path: [UInt8]
        public let access: Access
        public let expires: Instant?
        public let coordination: Coordination
        /// How a file is shown.
        public let form: DocumentBookmark.Form
        /// Where it is declared, for people.
        public let place: String

        public init(
            view: ViewName, name: GrantName?, path: [UInt8], access: Access, expires: Instant?, coordination: Coordination,
            form: DocumentBookmark.Form = .file, place: String
        ) {
            self.form = form
            (self.view, self.name, self.path, self.access) = (view, name, path, access)
            (self.expires, self.coordination, self.place) = (expires, coordination, place)
        }
    }

    /// Whoever is in none of them is left alone.
    public let views: Set<ViewName>
    public let items: [Item]

    public init(views: Set<ViewName>, items: [Item]) { (self.views, self.items) = (views.union(items.map(\.view)), items) }
}

/// What is to be done so that what is granted is what was declared. Nothing has been changed yet.
public struct ApplyPlan: Sendable {
    /// What differs of a grant, with what it is to become; nil where it stays.
    public struct Change: Sendable {
        public var access: Access?
        public var expires: Instant??
        public var coordination: Coordination?

        public init() {}

        public var isEmpty: Bool { access == nil && expires == nil && coordination == nil }
    }

    public enum Step: Sendable {
        case create(GrantAdministrator.Choice)
        case change(Grant, Change)
        /// Another directory stands at the declared path than the grant is of.
        case replace(Grant, GrantAdministrator.Choice)
        /// It is in no file any more: revoked, and forgotten.
        case withdraw(Grant)
        /// It was revoked, or has expired, and is made active again.
        case restore(Grant)
        case keep(Grant)
        /// It is not as declared, and stays as it is; for people.
        case leave(view: ViewName, name: GrantName, reason: String)

        public var place: (view: ViewName, name: GrantName) {
            switch self {
            case .create(let choice): (choice.view, choice.name)
            case .change(let grant, _), .replace(let grant, _), .withdraw(let grant), .restore(let grant), .keep(let grant):
                (grant.view, grant.name)
            case .leave(let view, let name, _): (view, name)
            }
        }

        /// Whether something is changed by it.
        public var isChange: Bool {
            switch self {
            case .create, .change, .replace, .withdraw, .restore: true
            case .keep, .leave: false
            }
        }

        /// Whether somebody loses something by it.
        public var takesAway: Bool {
            switch self {
            case .replace, .withdraw: true
            case .change(let grant, let change):
                change.access == .readOnly && grant.access == .readWrite || change.expires?.map { _ in true } ?? false
            case .create, .restore, .keep, .leave: false
            }
        }
    }

    /// By view and name.
    public let steps: [Step]
}
