import GrantAdministration
import GrantModel

// The types of other modules that the API of this one names. Nothing else of those modules is visible by `import GrantKit`, and no
// name here is one of Foundation's or of the standard library's.

/// See `GrantModel.Grant`.
public typealias Grant = GrantModel.Grant
/// See `GrantModel.GrantID`.
public typealias GrantID = GrantModel.GrantID
/// See `GrantModel.GrantName`.
public typealias GrantName = GrantModel.GrantName
/// See `GrantModel.ViewName`.
public typealias ViewName = GrantModel.ViewName
/// What a grant lets programs do: see `GrantModel.Access`.
public typealias GrantAccess = GrantModel.Access
/// The state of a grant now: see `GrantModel.GrantState`.
public typealias GrantState = GrantModel.GrantState
/// The names below a directory that are hidden, protected, or alone visible: see `GrantModel.GrantRules`.
public typealias GrantRules = GrantModel.GrantRules
/// A pattern of names: see `GrantModel.RulePattern`.
public typealias RulePattern = GrantModel.RulePattern
/// How a granted file is shown: see `GrantModel.DocumentBookmark.Form`.
public typealias GrantedFileForm = GrantModel.DocumentBookmark.Form
/// See `GrantModel.GrantError`.
public typealias GrantError = GrantModel.GrantError
/// See `GrantAdministration.CoordinationError`.
public typealias CoordinationError = GrantAdministration.CoordinationError
/// See `GrantAdministration.DirectoryProbe`.
public typealias DirectoryProbe = GrantAdministration.DirectoryProbe
/// See `GrantAdministration.GrantAdministrator`.
public typealias GrantAdministrator = GrantAdministration.GrantAdministrator
