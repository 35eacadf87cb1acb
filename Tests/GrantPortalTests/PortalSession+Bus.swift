import Testing

extension PortalSession {
    /// Like the machine's own session bus, with its limits. It starts no services.
    static func configuration(_ socket: String, _ waiting: Int) -> String {
        """
        <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
          "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
        <busconfig>
          <type>session</type>
          <listen>\(socket)</listen>
          <limit name="max_incoming_bytes">1000000000</limit>
          <limit name="max_incoming_unix_fds">250000000</limit>
          <limit name="max_outgoing_bytes">\(waiting)</limit>
          <limit name="max_outgoing_unix_fds">250000000</limit>
          <limit name="max_message_size">1000000000</limit>
          <limit name="max_replies_per_connection">50000</limit>
          <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
        </busconfig>
        """
    }

    /// The largest number of bytes that the bus keeps for one of the portal's connections, or nil
    /// without statistics.
    func bytes(_ statistic: String) throws -> Int? {
        let (name, object) = ("org.freedesktop.DBus", "/org/freedesktop/DBus")
        func ask(_ member: String, _ arguments: [Any], _ interface: String? = nil) throws -> PortalAnswer {
            try host.call(member, arguments.isEmpty ? "" : "(s)", arguments, interface: interface ?? name, service: name, object: object)
        }
        let names = try #require(try ask("ListNames", []).values.first as? [String]).filter { $0.hasPrefix(":") }
        let own = try names.filter { try ask("GetConnectionUnixProcessID", [$0]).values.first as? Int == portal.map { Int($0.pid) } }
        let answers = try own.map { try ask("GetConnectionStats", [$0], name + ".Debug.Stats") }
        return answers.compactMap { $0.dictionary[statistic] as? Int }.max()
    }
}
