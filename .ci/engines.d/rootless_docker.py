"""Docker that a user runs without root, with volumes of that user's own plugin."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

from place import PATH, wait
from users import USE, Rootless, revoked

SCRIPT = Path("/usr/share/docker.io/contrib/dockerd-rootless.sh")


class RootlessDocker(Rootless):
    """Docker of the trials' user, in a user namespace of rootlesskit. The plugin and its mounts are outside of that."""
    name = "rootless-docker"
    now = []
    more = []
    label = ""

    def prepare(self):
        super().prepare()
        self.driver = f"{self.place.name}-user"
        self.host = f"unix://{self.base}/run/docker.sock"
        self.start_plugin()
        network = {"DOCKERD_ROOTLESS_ROOTLESSKIT_NET": "host", "DOCKERD_ROOTLESS_ROOTLESSKIT_PORT_DRIVER": "none"}
        self.engine = subprocess.Popen(
            [*self.as_user, "sh", SCRIPT, "--iptables=false", "--bridge=none", "--storage-driver=vfs", "-H", self.host],
            env={**self.variables, **network}, stdout=subprocess.DEVNULL, stderr=open(self.base / "log", "a"))
        answers = lambda: self.engine.poll() is not None or self.command("version", ok=False).returncode == 0
        wait("dockerd answers, or ends", answers)
        if self.engine.poll() is not None:
            self.end()
            raise AssertionError((self.base / "log").read_text()[-3000:])
        # The user's Docker has a /run of its own. Nothing here takes root.
        inside = ["nsenter", "-t", (self.base / "run/docker.pid").read_text().strip(), "-U", "--preserve-credentials", "-m"]
        self.run(*inside, "mkdir", "-p", "/run/docker/plugins")
        self.run(*inside, "ln", "-s", self.socket, f"/run/docker/plugins/{self.driver}.sock")

    def command(self, *words, ok=True):
        return self.run("/usr/bin/docker", "-H", self.host, *words, ok=ok)

    def end(self):
        self.command("rm", "-f", *self.command("ps", "-aq", ok=False).stdout.split(), ok=False)
        self.engine.terminate()
        self.engine.wait(30)
        self.plugin.send_signal(signal.SIGTERM)
        self.plugin.wait(30)
        self.namespace.kill()
        self.namespace.wait(30)


def rootless(place):
    """A user's Docker finds the user's plugin: read, write, revoke, restore, and the death of the daemon."""
    for program in ("newuidmap", "rootlesskit"):
        if not shutil.which(program, path=PATH):
            return f"{program} is not installed"
    engine = RootlessDocker(place)
    try:
        engine.create("work", f"path={engine.base}/tree/src")
        for more in ([], ["--user", "1000:1000"]):
            use = lambda volume: engine.once([*more, *engine.options("one", volume)], USE)
            # A user's daemon cannot give files away.
            wanted = use(f"{engine.base}/tree:/data").replace("\nchown\n", "\nchown: /data/src/new: Operation not permitted\n")
            assert "content\n" in wanted and use("work:/data") == wanted, (use("work:/data"), wanted)
        engine.command("run", "-d", *engine.options("one", "work:/data"), *engine.image, "sleep", "1000")
        for mount in json.loads(engine.run("grantfs", "status", "--json").stdout)["mounts"]:
            os.kill(mount["pid"], signal.SIGKILL)
        revoked(engine, "work")
        engine.command("volume", "rm", "work")
        mounts = Path(f"/proc/{engine.namespace.pid}/mounts").read_text().splitlines()
        assert not any(str(engine.base) in line and "fuse.grantfs" in line for line in mounts), mounts
    finally:
        engine.end()
    return None
