// GrantKit
