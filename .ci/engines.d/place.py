"""What the trials of .ci/engines share: a place on the host, and the engines that run in it."""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PREFIX = Path(sys.argv[1]).resolve()
GRANTFS = str(PREFIX / "bin/grantfs")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# Ids that the trials' user may map, enough for two containers of 65536.
COUNT = 200000
# The last line of a script's output.
END = "end of the script"


def run(*words, ok=True, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, **more)
    if ok and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))} → {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def wait(what, condition, seconds=90):
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.05)


def kill_all(condition):
    """Kills the processes for which `condition`, called with a directory of /proc, is true."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int(process.name) != os.getpid() and condition(process):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


class Place:
    """A store, directories to grant, the plugin, a user with ids to map, and the root of an image."""

    def __init__(self):
        self.base = Path(tempfile.mkdtemp(prefix="grantfs-engines-"))
        # Users of other numbers run programs below it.
        self.base.chmod(0o711)
        # Names outside of the place, where two runs must not meet.
        self.name = self.base.name
        self.variables = {**os.environ, "PATH": PATH, "GRANTFS_STORE": str(self.base / "store")}
        self.variables.pop("DOCKER_HOST", None)
        self.socket = self.base / "grantfs.sock"
        self.plugin = None
        self.user = None
        for name in ("one", "two", "other"):
            (self.base / name).mkdir()
            (self.base / name / "file").write_text(f"{name}\n")

    def start(self):
        """Adds what `end` has to remove outside of the place."""
        self.make_user()
        self.make_image()
        self.start_plugin()

    def make_user(self):
        # Not a number that other tests use without a name.
        numbers = {"UID_MIN": 58000, "GID_MIN": 58000, "SUB_UID_COUNT": COUNT, "SUB_GID_COUNT": COUNT}
        settings = [word for name, value in numbers.items() for word in ("-K", f"{name}={value}")]
        run("useradd", "-M", "-U", "-d", self.base / "user", "-s", "/bin/sh", *settings, self.name)
        self.user = pwd.getpwnam(self.name)
        self.first_uid, self.first_gid = (self.first_id(file) for file in ("/etc/subuid", "/etc/subgid"))

    def first_id(self, file):
        """The first id in `file` that the user may map."""
        fields = (line.split(":") for line in Path(file).read_text().splitlines())
        return next(int(first) for name, first, _ in fields if name == self.name)

    def make_image(self):
        self.root = self.base / "root"
        (self.root / "bin").mkdir(parents=True)
        (self.root / "data").mkdir()
        shutil.copy("/usr/bin/busybox", self.root / "bin/busybox")
        run("cc", "-O1", "-Wall", "-Werror", "-static", "-o", self.root / "bin/mapping", Path(__file__).with_name("mapping.c"))
        for name in ("sh", "cat", "ls", "sleep", "stat", "touch", "echo", "chown", "rm", "mount", "true"):
            (self.root / "bin" / name).symlink_to("busybox")

    def start_plugin(self):
        self.plugin = subprocess.Popen(
            [GRANTFS, "volume-plugin", "--socket", self.socket], env=self.variables, stderr=open(self.base / "plugin.log", "a"))
        wait("the plugin listens", self.socket.exists)

    def end_plugin(self, number):
        self.plugin.send_signal(number)
        self.plugin.wait(30)

    def grantfs(self, *words, ok=True):
        return run(GRANTFS, *words, ok=ok, env=self.variables)

    def mounts(self):
        return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(self.base) in line and "fuse.grantfs" in line]

    def daemons(self):
        """The daemon of each mountpoint."""
        shown = json.loads(self.grantfs("status", "--json", ok=False).stdout or '{"mounts": []}')
        return {one["mountpoint"]: one["pid"] for one in shown["mounts"]}

    def end(self):
        if self.plugin and self.plugin.poll() is None:
            self.end_plugin(signal.SIGTERM)
        kill_all(self.owns)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{self.base}/"):
                run("umount", "-l", line.split()[1], ok=False)
        if self.user:
            # Also while a process of the user is a zombie.
            run("userdel", "-f", self.name, ok=False)
            Path(f"/dev/shm/libpod_rootless_lock_{self.user.pw_uid}").unlink(missing_ok=True)
        shutil.rmtree(self.base, ignore_errors=True)

    def owns(self, process):
        """Whether a process belongs to the place by its store, its words, or its root, as that of a container does."""
        inside = f"{self.base}/".encode()
        return (
            f"GRANTFS_STORE={self.base}/".encode() in (process / "environ").read_bytes()
            or inside in (process / "cmdline").read_bytes()
            or any(line.split()[4] == "/" and f"/{self.name}/" in line.split()[3] for line in (process / "mountinfo").read_text().splitlines()))


class Engine:
    """A container engine with the image `probe`."""
    # Added to a volume.
    label = ""
    # Ends a container at once.
    now = []
    # Options of all containers.
    more = []
    image = ["probe"]

    def __init__(self, place):
        self.place = place
        self.base = place.base / self.name
        self.base.mkdir()
        self.prepare()
        run("tar", "-C", place.root, "-cf", self.base / "image.tar", ".")
        self.command("import", self.base / "image.tar", "probe")

    def create(self, name, *options, ok=True):
        return self.command("volume", "create", "--driver", self.driver, *(word for option in options for word in ("-o", option)), name, ok=ok)

    def options(self, name, volume):
        # The shell of a container ignores SIGTERM.
        return ["--name", name, "--network=none", "--stop-timeout=1", *self.more, "-v", volume]

    def once(self, options, script):
        """Runs a script in a container, and gives its output. The container then waits for its end, because Podman reports an exit 20 s late."""
        words = ["sh", "-c", f"{{ {script}\n}} 2>&1; echo {END}; exec sleep 1000"]
        container = self.command("run", "-d", *options, *self.image, *words).stdout.split()[-1]
        logs = lambda: self.command("logs", container).stdout
        output = wait("the script ends", lambda: (lambda text: END in text.splitlines() and text)(logs()))
        self.command("rm", "-f", *self.now, container)
        return output.removesuffix(f"{END}\n")


class Docker(Engine):
    name = "docker"
    # Words for the engine.
    extra = []

    def prepare(self):
        self.driver = self.place.name
        self.host = f"unix://{self.base}/sock"
        self.maps = [[], ["--user", "1000:1000"], ["--user", "1000:0", "--cap-drop", "ALL"]]
        # Docker looks for plugins here only.
        self.specification = Path(f"/etc/docker/plugins/{self.driver}.spec")
        self.specification.parent.mkdir(parents=True, exist_ok=True)
        self.specification.write_text(f"unix://{self.place.socket}\n")
        self.engine = None
        self.start()

    def start(self):
        self.engine = subprocess.Popen(
            ["dockerd", "--iptables=false", "--bridge=none", "--storage-driver=vfs", f"--data-root={self.base}/data",
             f"--exec-root={self.base}/exec", f"--pidfile={self.base}/pid", "-H", self.host, *self.extra],
            env=self.place.variables, stdout=subprocess.DEVNULL, stderr=open(self.base / "log", "a"))
        wait("dockerd answers", lambda: self.command("version", ok=False).returncode == 0)

    def restart(self):
        self.engine.kill()
        self.engine.wait(30)
        # Their processes may be waiting to be reaped, and would be taken for running.
        for file in ("pid", "exec/containerd/containerd.pid"):
            (self.base / file).unlink(missing_ok=True)
        self.start()

    def command(self, *words, ok=True):
        return run("/usr/bin/docker", "-H", self.host, *words, ok=ok, env=self.place.variables)

    def end(self):
        # A container would outlive the engine.
        self.command("rm", "-f", *self.command("ps", "-aq", ok=False).stdout.split(), ok=False)
        self.engine.terminate()
        try:
            self.engine.wait(30)
        except subprocess.TimeoutExpired:
            self.engine.kill()
        self.specification.unlink(missing_ok=True)


class RemappedDocker(Docker):
    """Docker that maps the users of all containers."""
    name = "docker-remapped"

    def prepare(self):
        self.extra = [f"--userns-remap={self.place.name}"]
        super().prepare()
        self.maps = [[], ["--user", "1000:1000"], ["--user", "1000:1000", "--group-add", "1001", "--cap-drop", "ALL"], ["--userns", "host"]]


class Podman(Engine):
    name = "podman"
    driver = "grantfs"
    # Without SELinux, :z changes nothing.
    label = ":z"
    now = ["-t", "0"]
    # Podman 4.3 may fail to remove a container of a user namespace, also one without a volume: EBUSY for its /dev/shm.
    more = ["--ipc=none"]

    def prepare(self):
        mapped = ["--uidmap", f"0:{self.place.first_uid}:65536", "--gidmap", f"0:{self.place.first_gid}:65536"]
        self.maps = [[], ["--user", "1000:1000"], mapped, ["--user", "1000:1000", *mapped], ["--userns=auto"],
                     ["--userns=auto:size=70000", "--user", "1000:1000"]]
        self.variables = {**self.place.variables, **podman_settings(self.base, self.place.socket, self.place.name)}

    def restart(self):
        """It has no process of its own."""

    def command(self, *words, ok=True):
        return run("/usr/bin/podman", *words, ok=ok, env=self.variables)

    def end(self):
        self.command("rm", "-af", "-t", "0", ok=False)


def podman_settings(base, socket, user):
    """Writes the settings of a Podman that keeps everything in `base`, and gives its variables. `user` has the ids of --userns=auto."""
    (base / "hooks").mkdir(exist_ok=True)
    settings = base / "containers.conf"
    settings.write_text(f'''
[engine]
cgroup_manager="cgroupfs"
runtime="runc"
events_logger="file"
tmp_dir="{base}/tmp"
hooks_dir=["{base}/hooks"]
[engine.volume_plugins]
grantfs="{socket}"
[containers]
default_ulimits=["nofile=1024:2048","nproc=1000:1000"]
''')
    storage = base / "storage.conf"
    storage.write_text(f'''
[storage]
driver="vfs"
graphroot="{base}/graph"
runroot="{base}/run"
[storage.options]
root-auto-userns-user="{user}"
''')
    return {"CONTAINERS_CONF": str(settings), "CONTAINERS_STORAGE_CONF": str(storage)}


@contextlib.contextmanager
def started():
    """A place that has started, and the list of its engines. Ends them, and prints their logs after a failure."""
    # The modes of what the trials make.
    os.umask(0o022)
    place, engines = Place(), []
    try:
        place.start()
        yield place, engines
    except (AssertionError, subprocess.TimeoutExpired):
        for log in (place.base / "plugin.log", *place.base.glob("*docker*/log")):
            print(log.read_text()[-3000:] if log.exists() else "")
        raise
    finally:
        for engine in engines:
            engine.end()
        place.end()
