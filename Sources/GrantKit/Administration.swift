// Granting, revoking and looking, as the commands do it, is part of what programs get with `import GrantKit`.
@_exported import GrantAdministration
@_exported import GrantModel
