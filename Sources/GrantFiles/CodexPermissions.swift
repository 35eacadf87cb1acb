import GrantModel

/// Reads the permission profiles in Codex' config.toml.
package struct CodexPermissions: TOMLReading {
    let file: String
    private let profiles: [(key: String, value: TOMLValue)]
    private let standard: String?

    /// Reads these tables, and ignores everything else in the file. Throws `.invalidFile`.
    package init(_ bytes: [UInt8], file: String) throws(GrantError) {
        self.file = file
        var (profiles, standard): ([(key: String, value: TOMLValue)], String?) = ([], nil)
        let reader = Reader(file: file)
        for (key, value) in try reader.items(of: bytes) {
            switch key {
            case "permissions": profiles = try reader.table(value, key)
            case "default_permissions": standard = try reader.text(value, key)
            case "sandbox_mode", "sandbox_workspace_write":
                throw reader.wrong(value, "“\(key)” does not go with permission profiles", advice: "remove it, and name a profile")
            default: continue
            }
        }
        (self.profiles, self.standard) = (profiles, standard)
    }

    private struct Reader: TOMLReading { let file: String }

    /// Returns what a profile permits.
    ///
    /// - Parameters:
    ///   - name: nil for the file's own default.
    ///   - root: The workspace, besides those that the profile names.
    package func configuration(_ name: String?, root: String) throws(GrantError) -> SandboxConfiguration {
        guard let name = name ?? standard else {
            throw GrantError(.usage, "\(file) selects no permission profile", advice: "--config-profile NAME")
        }
        var made = Merged()
        try merge(name, into: &made, visited: [])
        return try made.configuration(root: root, self)
    }

    /// A profile with those that it extends.
    fileprivate struct Merged {
        var roots: [String] = []
        /// The last value of each key.
        var files: [(path: String, access: FileAccess, value: TOMLValue?)] = []
        var inRoots: [(path: String, access: FileAccess, value: TOMLValue?)] = []
        var isNetworkEnabled: Bool?
        var domains: [(name: String, isAllowed: Bool, value: TOMLValue)] = []
    }

    fileprivate enum FileAccess: String {
        case read, write, deny
        /// The former word for `deny`.
        case none
    }

    private func merge(_ name: String, into made: inout Merged, visited: [String]) throws(GrantError) {
        if visited.contains(name) { throw GrantError(.invalidFile, "\(file): the profile “\(name)” extends itself") }
        switch name {
        case ":workspace":
            made.inRoots.append((".", .write, nil))
            return
        case ":read-only":
            made.inRoots.append((".", .read, nil))
            return
        case ":danger-full-access":
            throw GrantError(.unsupported, "\(file): “:danger-full-access” is not a sandbox", advice: "run the program without grantfs run")
        default: break
        }
        guard let profile = profiles.first(where: { $0.key == name }) else {
            let names = profiles.map(\.key).joined(separator: ", ")
            throw GrantError(
                .notFound, "\(file) has no permission profile “\(name)”", cause: names.isEmpty ? "there is none" : "there are \(names)")
        }
        let items = try table(profile.value, "permissions.\(name)")
        for (key, value) in items where key == "extends" {
            try merge(try text(value, key), into: &made, visited: visited + [name])
        }
        for (key, value) in items {
            switch key {
            case "extends", "description": continue
            case "workspace_roots":
                for (path, value) in try table(value, key) where try boolean(value, path) { made.roots.append(path) }
            case "filesystem": try readFiles(value, into: &made)
            case "network": try readNetwork(value, into: &made)
            default: throw unknown(key, value, among: ["description", "extends", "workspace_roots", "filesystem", "network"])
            }
        }
    }

    private func readFiles(_ value: TOMLValue, into made: inout Merged) throws(GrantError) {
        for (path, value) in try table(value, "filesystem") {
            if path == "glob_scan_max_depth" { continue }
            if path == ":workspace_roots" || path == ":project_roots" {
                if case .table(let entries) = value.kind {
                    for (path, value) in entries { Self.set(&made.inRoots, path, try access(value, path), value) }
                } else {
                    Self.set(&made.inRoots, ".", try access(value, path), value)
                }
                continue
            }
            Self.set(&made.files, path, try access(value, path), value)
        }
    }

    private static func set(
        _ list: inout [(path: String, access: FileAccess, value: TOMLValue?)], _ path: String, _ access: FileAccess, _ value: TOMLValue
    ) {
        list.removeAll { $0.path == path }
        list.append((path, access, value))
    }

    private func access(_ value: TOMLValue, _ path: String) throws(GrantError) -> FileAccess {
        if case .table = value.kind { throw wrong(value, "“\(path)” has no paths in it", advice: "only :workspace_roots has") }
        return try word(value, path, "read, write or deny")
    }

    private func readNetwork(_ value: TOMLValue, into made: inout Merged) throws(GrantError) {
        for (key, value) in try table(value, "network") {
            switch key {
            case "enabled": made.isNetworkEnabled = try boolean(value, key)
            case "domains":
                for (name, value) in try table(value, key) {
                    let word = try text(value, name)
                    guard ["allow", "deny"].contains(word) else {
                        throw wrong(value, "“\(word)” is unknown for “\(name)”", advice: "allow or deny")
                    }
                    made.domains.removeAll { $0.name == name }
                    made.domains.append((name, word == "allow", value))
                }
            // Servers of the program itself are possible anyway.
            case "allow_local_binding": _ = try boolean(value, key)
            case "mode": if try text(value, key) != "full" { throw inexpressible(key, value) }
            default:
                guard case .boolean(false) = value.kind else { throw inexpressible(key, value) }
            }
        }
    }

    fileprivate func inexpressible(_ key: String, _ value: TOMLValue?, advice: String? = nil) -> GrantError {
        GrantError(
            .invalidFile, "\(file)\(value.map { ":\($0.line)" } ?? ""): “\(key)” is not possible in a sandbox of grantfs",
            advice: advice ?? "leave it out")
    }

    private func table(_ value: TOMLValue, _ key: String) throws(GrantError) -> [(key: String, value: TOMLValue)] {
        try Reader(file: file).table(value, key)
    }

    private func boolean(_ value: TOMLValue, _ key: String) throws(GrantError) -> Bool {
        guard case .boolean(let answer) = value.kind else { throw wrong(value, "“\(key)” is true or false") }
        return answer
    }
}

extension TOMLReading {
    fileprivate func table(_ value: TOMLValue, _ key: String) throws(GrantError) -> [(key: String, value: TOMLValue)] {
        guard case .table(let items) = value.kind else { throw wrong(value, "“\(key)” is a table") }
        return items
    }
}

extension CodexPermissions.Merged {
    fileprivate func configuration(root: String, _ reader: CodexPermissions) throws(GrantError) -> SandboxConfiguration {
        var result = SandboxConfiguration()
        for (path, access, value) in files {
            switch path {
            // What a sandbox has of the system, and its own /tmp.
            case ":minimal" where access == .read, ":tmpdir" where access == .write, ":slash_tmp" where access == .write: continue
            default:
                if path.hasPrefix(":") {
                    throw reader.inexpressible("\(path) = \(access.rawValue)", value, advice: "name the directories to be granted")
                }
                add(path, access, path, reader, &result)
            }
        }
        for root in [root] + roots {
            for (path, access, _) in inRoots {
                if path.split(separator: "/").contains("..") || path.hasPrefix("/") {
                    throw GrantError(.invalidFile, "\(reader.file): “\(path)” leads out of the workspace")
                }
                let names = path.split(separator: "/").filter { $0 != "." }
                add(([root] + names.map(String.init)).joined(separator: "/"), access, path, reader, &result)
            }
        }
        // Codex keeps these from being written, because they decide what it does later.
        for place in result.writable {
            for name in [".git", ".codex", ".agents"] where !result.writable.contains(where: { $0.path == "\(place.path)/\(name)" }) {
                result.readOnlyParts.append(.init("\(place.path)/\(name)", place.key))
            }
        }
        let (allowed, denied) = (domains.filter(\.isAllowed), domains.filter { !$0.isAllowed })
        if isNetworkEnabled != true {
            result.network = .none
        } else if domains.isEmpty {
            result.network = .all
        } else {
            if let all = domains.first(where: { $0.name == "*" }) {
                guard all.isAllowed, denied.isEmpty else { throw reader.inexpressible("domains.\(all.name)", all.value) }
                result.network = .all
            } else {
                result.network = SandboxConfiguration.hosts(
                    allowed: allowed.flatMap { Self.words($0.name) }, denied: denied.flatMap { Self.words($0.name) })
            }
        }
        return result
    }

    private func add(
        _ path: String, _ access: CodexPermissions.FileAccess, _ key: String, _ reader: CodexPermissions,
        _ result: inout SandboxConfiguration
    ) {
        let place = SandboxConfiguration.Place(path, "\(reader.file): \(key)")
        switch access {
        case .read:
            result.readable.append(place)
            result.readOnlyParts.append(place)
        case .write: result.writable.append(place)
        case .deny, .none: result.hidden.append(place)
        }
    }

    /// `**.example.org` is the domain and all below it.
    private static func words(_ name: String) -> [String] {
        name.hasPrefix("**.") ? [String(name.dropFirst(3)), String(name.dropFirst(1))] : [name]
    }
}
