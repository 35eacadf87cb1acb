import GrantModel

/// A declared state: all grants of each view that it names.
public struct DeclaredState: Sendable {
    public struct Item: Sendable {
        public let view: ViewName
        /// nil: the directory's own name.
        public let name: GrantName?
        public let path: [UInt8]
        public let access: Access
        public let expires: Instant?
        public let coordination: Coordination
        /// How a granted file is shown.
        public let form: DocumentBookmark.Form
        public let rules: GrantRules
        /// The location of the declaration, for people.
        public let place: String

        public init(
            view: ViewName, name: GrantName?, path: [UInt8], access: Access, expires: Instant?, coordination: Coordination,
            form: DocumentBookmark.Form = .file, rules: GrantRules = .none, place: String
        ) {
            (self.form, self.rules) = (form, rules)
            (self.view, self.name, self.path, self.access) = (view, name, path, access)
            (self.expires, self.coordination, self.place) = (expires, coordination, place)
        }
    }

    /// The declared views. All others are unchanged.
    public let views: Set<ViewName>
    public let items: [Item]

    public init(views: Set<ViewName>, items: [Item]) { (self.views, self.items) = (views.union(items.map(\.view)), items) }
}

/// The changes that make the granted state match the declared one. Nothing has been changed yet.
public struct ApplyPlan: Sendable {
    /// The new properties of a grant. A property is nil if it does not change.
    public struct Change: Sendable {
        public var access: Access?
        public var expires: Instant??
        public var coordination: Coordination?
        public var rules: GrantRules?

        public init() {}

        public var isEmpty: Bool { access == nil && expires == nil && coordination == nil && rules == nil }
    }

    public enum Step: Sendable {
        case create(GrantAdministrator.Choice)
        case change(Grant, Change)
        /// Another directory is at the declared path than the granted one.
        case replace(Grant, GrantAdministrator.Choice)
        /// No file declares it any more: it is revoked and removed.
        case withdraw(Grant)
        /// It was revoked or has expired, and is made active again.
        case restore(Grant)
        case keep(Grant)
        /// It differs from its declaration and stays so. `reason` is for people.
        case leave(view: ViewName, name: GrantName, reason: String)

        public var place: (view: ViewName, name: GrantName) {
            switch self {
            case .create(let choice): (choice.view, choice.name)
            case .change(let grant, _), .replace(let grant, _), .withdraw(let grant), .restore(let grant), .keep(let grant):
                (grant.view, grant.name)
            case .leave(let view, let name, _): (view, name)
            }
        }

        /// Whether the step changes anything.
        public var isChange: Bool {
            switch self {
            case .create, .change, .replace, .withdraw, .restore: true
            case .keep, .leave: false
            }
        }

        /// Whether the step takes access away.
        public var takesAway: Bool {
            switch self {
            case .replace, .withdraw: true
            case .change(let grant, let change):
                change.access == .readOnly && grant.access == .readWrite || change.expires?.map { _ in true } ?? false
                    || change.rules.map { !grant.rules.narrows($0) } ?? false
            case .create, .restore, .keep, .leave: false
            }
        }
    }

    /// Sorted by view and name.
    public let steps: [Step]
}
