// GrantStore
