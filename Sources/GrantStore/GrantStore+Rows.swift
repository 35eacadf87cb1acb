import GrantModel

/// Conversion of rows of the table `grants`.
///
/// Each row has a seal over all its columns, made with the store's key. A row that was edited,
/// damaged, or comes from another store fails the check and is not a grant.
extension GrantStore {
    static let columns =
        "id, view, name, access, state, created, expires, activation, bookmark, seal, coordination, fleet_activation, cache, rules, offered"

    /// Computes the seal of a row.
    ///
    /// `formerCache`: the column `cache`, which a version before 0.1.0 wrote for a grant with a
    /// cache mode of its own.
    func sealed(_ grant: Grant, bookmark: [UInt8], formerCache: String? = nil) -> Int64 {
        var writer = BinaryWriter()
        writer.write(grant.id.high)
        writer.write(grant.id.low)
        writer.write(grant.view.description)
        writer.write(grant.name.bytes)
        writer.write(grant.access.rawValue)
        writer.write(grant.state.rawValue)
        writer.write(grant.created.nanoseconds)
        writer.write(optional: grant.expires) { $0.write($1.nanoseconds) }
        writer.write(grant.activation)
        writer.write(bookmark)
        // Rows from before this column are sealed without it, and mean the default.
        if grant.coordination != .advisory { writer.write(grant.coordination.rawValue) }
        if let activation = grant.fleetActivation {
            writer.write("fleet")
            writer.write(activation)
        }
        if let formerCache {
            writer.write("cache")
            writer.write(formerCache)
        }
        if !grant.rules.isEmpty {
            writer.write("rules")
            writer.write(grant.rules.encoded)
        }
        if grant.isOffered { writer.write("offered") }
        return Int64(bitPattern: seal.hash(writer.bytes))
    }

    func values(of grant: Grant) -> [Value] {
        let bookmark = grant.bookmark.encoded()
        return [
            .blob(grant.id.bytes), .blob(Array(grant.view.description.utf8)), .blob(grant.name.bytes), .text(grant.access.rawValue),
            .text(grant.state.rawValue), .integer(grant.created.nanoseconds), Value(grant.expires?.nanoseconds),
            .integer(grant.activation), .blob(bookmark), .integer(sealed(grant, bookmark: bookmark)), .text(grant.coordination.rawValue),
            Value(grant.fleetActivation), .null, grant.rules.isEmpty ? .null : .blob(grant.rules.encoded),
            grant.isOffered ? .integer(1) : .null,
        ]
    }

    func grant(from row: borrowing Statement, _ database: Database) throws(GrantError) -> Grant {
        let bytes = row.blob(8)
        let flaw: String
        guard let id = GrantID(bytes: row.blob(0)), let view = try? ViewName(row.text(1)), let name = try? GrantName(entry: row.blob(2)),
            let access = Access(rawValue: row.text(3)), let state = RecordedState(rawValue: row.text(4)),
            let coordination = Coordination(rawValue: row.text(10))
        else { throw StoreFailure.damaged(database.path, "a grant's record makes no sense") }
        let formerCache = row.isNull(12) ? nil : row.text(12)
        guard let rules = row.isNull(13) ? GrantRules.none : try? GrantRules(encoded: row.blob(13)) else {
            throw StoreFailure.damaged(database.path, "the record of grant \(id): its rules make no sense")
        }
        do throws(Bookmark.DecodingFlaw) {
            var grant = Grant(
                id: id, view: view, name: name, bookmark: try Bookmark(encoded: bytes), access: access, state: state,
                created: Instant(nanoseconds: row.integer(5)), expires: row.optionalInteger(6).map { Instant(nanoseconds: $0) },
                activation: row.integer(7), coordination: coordination,
                fleetActivation: row.optionalInteger(11), rules: rules)
            grant.isOffered = !row.isNull(14)
            if row.integer(9) == sealed(grant, bookmark: bytes, formerCache: formerCache) { return grant }
            flaw = "its seal does not fit: it was changed by something else than grantfs, or comes from another store"
        } catch {
            flaw = "its bookmark cannot be read: \(error.rawValue)"
        }
        throw StoreFailure.damaged(database.path, "the record of grant \(id): \(flaw)")
    }

    func find(_ id: GrantID, in database: Database) throws(GrantError) -> Grant? {
        var found: Grant?
        try database.query("SELECT \(GrantStore.columns) FROM grants WHERE id = ?", [.blob(id.bytes)]) { (row) throws(GrantError) in
            found = try grant(from: row, database)
        }
        return found
    }

    /// Adds a row.
    func add(_ grant: Grant, in database: Database) throws(GrantError) {
        let values = values(of: grant)
        let places = values.map { _ in "?" }.joined(separator: ", ")
        try database.query("INSERT INTO grants (\(GrantStore.columns)) VALUES (\(places))", values)
    }

    /// Writes all columns.
    func save(_ grant: Grant, in database: Database) throws(GrantError) {
        try database.query(
            """
            UPDATE grants SET view = ?2, name = ?3, access = ?4, state = ?5, created = ?6, expires = ?7, activation = ?8,
            bookmark = ?9, seal = ?10, coordination = ?11, fleet_activation = ?12, cache = ?13, rules = ?14, offered = ?15 WHERE id = ?1
            """, values(of: grant))
    }

    func requireFree(_ name: GrantName, in view: ViewName, _ database: Database) throws(GrantError) {
        var taken = false
        try database.query(
            "SELECT 1 FROM grants WHERE view = ? AND name = ?", [.blob(Array(view.description.utf8)), .blob(name.bytes)]
        ) { (_) throws(GrantError) in taken = true }
        if taken { throw StoreFailure.nameTaken(name, view) }
    }
}

extension GrantID {
    /// 16 bytes, big-endian.
    var bytes: [UInt8] {
        var writer = BinaryWriter()
        writer.write(high)
        writer.write(low)
        return writer.bytes
    }

    init?(bytes: [UInt8]) {
        var reader = BinaryReader(bytes[...])
        guard bytes.count == 16, let high = try? reader.read(UInt64.self), let low = try? reader.read(UInt64.self) else { return nil }
        self.init(high: high, low: low)
    }
}
