import CGrantSQLite
import GrantModel

/// The database schema, as a list of migrations.
///
/// A released migration never changes. New ones are appended.
struct Schema: Sendable {
    /// Migration n takes a database from version n (`PRAGMA user_version`) to n + 1.
    let steps: [String]

    var version: Int64 { Int64(truncatingIfNeeded: steps.count) }

    /// `GrFs`: marks the database as one of grantfs.
    static let applicationID: Int64 = 0x4772_4673

    static let current = Schema(steps: [
        """
        CREATE TABLE grants (
            id BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
            view BLOB NOT NULL,
            name BLOB NOT NULL,
            access TEXT NOT NULL CHECK (access IN ('read-write', 'read-only')),
            state TEXT NOT NULL CHECK (state IN ('active', 'revoked', 'expired')),
            created INTEGER NOT NULL,
            expires INTEGER,
            activation INTEGER NOT NULL CHECK (activation > 0),
            bookmark BLOB NOT NULL,
            seal INTEGER NOT NULL,
            UNIQUE (view, name)
        ) STRICT;
        CREATE TABLE mounts (
            id BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
            view BLOB NOT NULL,
            mountpoint BLOB NOT NULL,
            pid INTEGER NOT NULL,
            process_start INTEGER NOT NULL,
            boot TEXT NOT NULL,
            socket TEXT NOT NULL,
            since INTEGER NOT NULL
        ) STRICT;
        CREATE TABLE log (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            time INTEGER NOT NULL,
            event TEXT NOT NULL,
            uid INTEGER NOT NULL,
            pid INTEGER NOT NULL,
            program TEXT NOT NULL,
            view BLOB,
            grant_id BLOB,
            name BLOB,
            detail TEXT NOT NULL
        ) STRICT;
        """,
        """
        ALTER TABLE log ADD COLUMN path BLOB;
        ALTER TABLE log ADD COLUMN error INTEGER;
        CREATE INDEX log_openings ON log (number) WHERE event = 'opened';
        """,
        """
        ALTER TABLE grants ADD COLUMN coordination TEXT NOT NULL DEFAULT 'advisory' CHECK (coordination IN ('advisory', 'mandatory'));
        """,
        """
        ALTER TABLE mounts ADD COLUMN device INTEGER;
        ALTER TABLE mounts ADD COLUMN mount_number INTEGER;
        ALTER TABLE mounts ADD COLUMN control_inode INTEGER;
        ALTER TABLE mounts ADD COLUMN control_changed INTEGER;
        ALTER TABLE mounts ADD COLUMN control_instance INTEGER;
        ALTER TABLE mounts ADD COLUMN generation INTEGER;
        """,
        """
        ALTER TABLE log ADD COLUMN new_path BLOB;
        ALTER TABLE log ADD COLUMN access TEXT;
        ALTER TABLE log ADD COLUMN count INTEGER;
        ALTER TABLE log ADD COLUMN login_uid INTEGER;
        ALTER TABLE log ADD COLUMN kept INTEGER GENERATED ALWAYS AS (CASE
            WHEN event IN ('granted', 'revoked', 'restored', 'removed', 'changed', 'expired', 'mounted', 'unmounted', 'released', 'forgotten')
            THEN 0 WHEN event IN ('denied', 'passedOver', 'bookmarkMoved', 'bookmarkReplaced') THEN 2 ELSE 1 END) VIRTUAL;
        DROP INDEX log_openings;
        CREATE INDEX log_shares ON log (kept, grant_id, uid, number);
        """,
        """
        ALTER TABLE grants ADD COLUMN fleet_activation INTEGER;
        """,
        """
        ALTER TABLE grants ADD COLUMN cache TEXT CHECK (cache IN ('shared', 'exclusive', 'none'));
        """,
        """
        ALTER TABLE grants ADD COLUMN rules BLOB;
        """,
        """
        ALTER TABLE grants ADD COLUMN offered INTEGER;
        """,
    ])

    /// Sets the options that belong to a connection and are not stored in the file.
    func configure(_ database: Database) throws(GrantError) {
        // mmap_size: a truncated file must be an error, not SIGBUS. trusted_schema,
        // cell_size_check: the file may be damaged. wal_autocheckpoint: the first process to open the store reads the whole log.
        try database.execute(
            """
            PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;
            PRAGMA mmap_size = 0; PRAGMA wal_autocheckpoint = 250;
            """)
    }

    /// Creates the tables in an empty database that no other process uses yet.
    func create(in database: Database) throws(GrantError) {
        try configure(database)
        try database.transaction { () throws(GrantError) in
            try database.execute("PRAGMA application_id = \(Schema.applicationID)")
            try apply(from: 0, to: database)
        }
        try database.execute("PRAGMA journal_mode = WAL")
    }

    /// Refuses a database that is not ours, newer, damaged or older, and changes nothing.
    func inspect(_ database: Database) throws(GrantError) {
        if try check(database) < self.version {
            throw GrantError(
                .unsupported, "the store \(database.path) is of an older version", advice: "any other command of its owner renews it")
        }
    }

    /// Refuses a database that is not ours, newer or damaged. Returns its version.
    private func check(_ database: Database) throws(GrantError) -> Int64 {
        try configure(database)
        let path = database.path
        guard try database.integer("PRAGMA application_id") == Schema.applicationID else {
            throw StoreFailure.damaged(path, "it is not a store of grantfs")
        }
        let version = try database.integer("PRAGMA user_version")
        if version > self.version { throw StoreFailure.newer(path, version: version) }
        if version < 1 { throw StoreFailure.damaged(path, "it has no version") }
        // The log is not checked: it may be long, and it grants nothing.
        for table in ["grants", "mounts"] {
            try database.query("PRAGMA quick_check(\(table))") { (row) throws(GrantError) in
                let answer = row.text(0)
                if answer != "ok" { throw StoreFailure.damaged(path, answer) }
            }
        }
        return version
    }

    /// Refuses a database that is not ours, newer or damaged, and migrates an older one.
    func prepare(_ database: Database) throws(GrantError) {
        var version = try check(database)
        let path = database.path
        if version < self.version {
            try database.transaction { () throws(GrantError) in
                // Another process may have migrated it between the check and the lock.
                version = try database.integer("PRAGMA user_version")
                if version > self.version { throw StoreFailure.newer(path, version: version) }
                if version < 1 { throw StoreFailure.damaged(path, "it has no version") }
                try apply(from: version, to: database)
            }
        }
        var mode = ""
        try database.query("PRAGMA journal_mode = WAL") { (row) throws(GrantError) in mode = row.text(0) }
        if mode != "wal" { throw StoreFailure.unavailable(path, "its filesystem cannot keep a write-ahead log") }
    }

    private func apply(from version: Int64, to database: Database) throws(GrantError) {
        for step in steps.dropFirst(Int(clamping: version)) { try database.execute(step) }
        try database.execute("PRAGMA user_version = \(self.version)")
    }
}
