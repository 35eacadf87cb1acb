// `import GrantKit` includes granting, revoking and listing, as the commands do it.
@_exported import GrantAdministration
@_exported import GrantModel
