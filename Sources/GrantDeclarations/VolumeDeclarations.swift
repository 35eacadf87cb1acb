import GrantCommandLine

extension CommandDeclaration {
    package static let volumePlugin = CommandDeclaration(
        "volume-plugin", "Serves volumes to container engines: each is a view, to which grants are added and from which they are taken.",
        options: [
            OptionDeclaration(
                "socket", value: "PATH",
                help: "where engines connect (default: the socket of systemd, else /run/docker/plugins/grantfs.sock)")
        ],
        notes: [
            "It speaks Docker's plugin protocol: docker volume create -d grantfs -o path=/srv/data NAME. Podman needs "
                + "grantfs = \"/run/docker/plugins/grantfs.sock\" in the table engine.volume_plugins of containers.conf.",
            "Options of a volume: path=DIR grants a directory to it, with ro, ttl=SPAN, hide=, protect= and only=PATTERN,… and "
                + "name=NAME. Or view=VIEW shows a view that exists. Without options a volume is empty. "
                + "A view has the volume's name otherwise, and ends with it.",
            "Mounts go on without the plugin. Only root, or the user who started it, may connect.",
        ], program: .volumes)

    package static let hook = CommandDeclaration(
        "oci-hook", "Gives a container a view by its annotations, and takes it away at the end. Container runtimes start it.",
        options: [
            OptionDeclaration(
                "allow", value: "DIR", help: "directories in DIR may be granted to containers (default: none)", isRepeatable: true),
            OptionDeclaration("socket", value: "PATH", help: "where the plugin of volumes listens"),
        ],
        notes: [
            "It is a hook of the stages createRuntime and poststop (OCI runtime specification), and needs the service of grantfs "
                + "volume-plugin.",
            "The annotation grantfs.destination=/data is the place in the container. grantfs.path=DIR grants a directory, with "
                + "grantfs.ro, .ttl, .hide, .protect, .only and .name, as for a volume. The view is called oci-ID after the container. "
                + "The option container of its volume is the whole id.",
        ], program: .volumes)
}
