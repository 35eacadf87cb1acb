import GrantModel

extension FleetStore {
    /// How often an alarm is disarmed for one request: a client without a password may raise it again each time.
    private static let disarmings = 10

    /// Sends a request that writes. If etcd refuses it because of an alarm, the alarm is disarmed and the request sent again.
    ///
    /// etcd 3.4 lets every client raise an alarm (Maintenance.Alarm asks for no permission). An alarm that has a reason comes back: etcd
    /// raises NOSPACE again at the next write, and CORRUPT stays if the members' data differ.
    func disarming<Result>(_ body: () throws(EtcdFailure) -> Result) throws(EtcdFailure) -> Result {
        for attempt in 0... {
            do throws(EtcdFailure) {
                return try body()
            } catch {
                // A full database is full at the second try too.
                guard attempt < (error == .full ? 1 : Self.disarmings), error == .full || error == .corrupt else { throw error }
                if error == .corrupt, client.membersDiffer() { throw error }
                let alarms = try client.disarm()
                if attempt == 0, !alarms.isEmpty {
                    note(
                        "etcd refused every change because of an alarm (\(Set(alarms).sorted().joined(separator: ", "))), which is "
                            + "disarmed now: any client of etcd 3.4 can raise one, see docs/fleet.md")
                }
            }
        }
        throw .corrupt
    }
}

extension EtcdClient {
    /// Disarms every alarm, and returns their names, such as `NOSPACE`.
    func disarm() throws(EtcdFailure) -> [String] {
        let alarms = try call("/v3/maintenance/alarm", ["action": .string("GET")])["alarms"]?.items ?? []
        for alarm in alarms {
            _ = try call(
                "/v3/maintenance/alarm",
                [
                    "action": .string("DEACTIVATE"), "memberID": alarm["memberID"] ?? .string("0"),
                    "alarm": alarm["alarm"] ?? .string("NONE"),
                ])
        }
        return alarms.compactMap { $0["alarm"]?.string }
    }

    /// Whether two members have different data at one revision. Returns false if that is not known:
    /// only etcd's user root may ask.
    func membersDiffer() -> Bool {
        guard let revision = try? read(FleetKeys.format).revision else { return false }
        var hashes: [Int64: Int64] = [:]
        for endpoint in settings.endpoints {
            var settings = settings
            settings.endpoints = [endpoint]
            guard
                let answer = try? EtcdClient(settings, timeout: timeout).call(
                    "/v3/maintenance/hash", ["revision": .string("\(revision)")]), let hash = answer["hash"]?.integer
            else { continue }
            // Hashes cover only revisions that were not compacted.
            let compacted = answer["compact_revision"]?.integer ?? 0
            if let other = hashes.updateValue(hash, forKey: compacted), other != hash { return true }
        }
        return false
    }
}
