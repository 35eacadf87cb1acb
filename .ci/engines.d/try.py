"""Runs containers with volumes of grantfs in Docker and Podman, revokes, and ends each part while they run: try.py PREFIX [--hundred]"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PREFIX = Path(sys.argv[1])
GRANTFS = str(PREFIX / "bin/grantfs")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


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


class Place:
    """A store, directories to grant, the plugin, and the root of a container's image."""

    def __init__(self):
        self.base = Path(tempfile.mkdtemp(prefix="grantfs-engines."))
        self.variables = {**os.environ, "PATH": PATH, "GRANTFS_STORE": str(self.base / "store")}
        self.variables.pop("DOCKER_HOST", None)
        self.socket = self.base / "grantfs.sock"
        self.plugin = None
        for name in ("one", "two", "other"):
            (self.base / name).mkdir()
            (self.base / name / "file").write_text(f"{name}\n")
        self.root = self.base / "root"
        (self.root / "bin").mkdir(parents=True)
        (self.root / "data").mkdir()
        shutil.copy("/usr/bin/busybox", self.root / "bin/busybox")
        run("cc", "-O1", "-Wall", "-Werror", "-static", "-o", self.root / "bin/mapping", Path(__file__).with_name("mapping.c"))
        (self.root / "link").symlink_to("/../../../../../../usr/share")
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
        return [one["pid"] for one in json.loads(self.grantfs("status", "--json", ok=False).stdout)["mounts"]]

    def end(self):
        if self.plugin and self.plugin.poll() is None:
            self.end_plugin(signal.SIGTERM)
        run("pkill", "-9", "-f", self.base, ok=False)
        # Processes of containers, whose root is below the place.
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "ns/mnt") != os.readlink("/proc/self/ns/mnt") and f"{self.base}/" in (process / "mountinfo").read_text():
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                continue
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{self.base}/"):
                run("umount", "-l", line.split()[1], ok=False)
        shutil.rmtree(self.base, ignore_errors=True)


class Docker:
    name = "docker"
    # Docker looks for plugins here only.
    specification = Path("/etc/docker/plugins/grantfs-test.spec")
    driver = "grantfs-test"
    maps = [[], ["--user", "1000:1000"], ["--user", "1000:0", "--cap-drop", "ALL"]]
    label = ""
    now = []

    def __init__(self, place):
        self.place = place
        self.base = place.base / "docker"
        self.base.mkdir()
        self.host = f"unix://{self.base}/sock"
        self.specification.parent.mkdir(parents=True, exist_ok=True)
        self.specification.write_text(f"unix://{place.socket}\n")
        self.engine = None
        self.start()
        archive = run("tar", "-C", place.root, "-cf", self.base / "image.tar", ".") and self.base / "image.tar"
        self.command("import", archive, "probe")
        self.image = ["probe"]

    def start(self):
        self.engine = subprocess.Popen(
            ["dockerd", "--iptables=false", "--bridge=none", "--storage-driver=vfs", f"--data-root={self.base}/data",
             f"--exec-root={self.base}/exec", f"--pidfile={self.base}/pid", "-H", self.host],
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

    def options(self, name, volume):
        return ["--name", name, "--network=none", "-v", volume]

    def end(self):
        # A container would outlive the engine.
        self.command("rm", "-f", *self.command("ps", "-aq", ok=False).stdout.split(), ok=False)
        self.engine.terminate()
        try:
            self.engine.wait(30)
        except subprocess.TimeoutExpired:
            self.engine.kill()
        self.specification.unlink(missing_ok=True)


class Podman:
    name = "podman"
    driver = "grantfs"
    # Without SELinux, :z changes nothing.
    maps = [[], ["--user", "1000:1000"], ["--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536"],
            ["--user", "1000:1000", "--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536"]]
    label = ":z"
    now = ["-t", "0"]

    def __init__(self, place):
        self.place = place
        self.base = place.base / "podman"
        (self.base / "hooks").mkdir(parents=True)
        settings = self.base / "containers.conf"
        settings.write_text(f'''
[engine]
cgroup_manager="cgroupfs"
runtime="runc"
events_logger="file"
tmp_dir="{self.base}/tmp"
hooks_dir=["{self.base}/hooks"]
[engine.volume_plugins]
grantfs="{place.socket}"
[containers]
default_ulimits=["nofile=1024:2048","nproc=1000:1000"]
''')
        storage = self.base / "storage.conf"
        storage.write_text(f'[storage]\ndriver="vfs"\ngraphroot="{self.base}/graph"\nrunroot="{self.base}/run"\n')
        self.variables = {**place.variables, "CONTAINERS_CONF": str(settings), "CONTAINERS_STORAGE_CONF": str(storage)}
        archive = run("tar", "-C", place.root, "-cf", self.base / "image.tar", ".") and self.base / "image.tar"
        self.command("import", archive, "probe")
        self.image = ["probe"]

    def restart(self):
        """It has no process of its own."""

    def command(self, *words, ok=True):
        return run("/usr/bin/podman", *words, ok=ok, env=self.variables)

    def options(self, name, volume):
        return ["--name", name, "--network=none", "-v", volume]

    def end(self):
        self.command("rm", "-af", "-t", "0", ok=False)


# Reads a file by its path and by an open descriptor, for ever.
READER = "exec 3</data/one/file; while :; do cat /data/one/file; ls /data; cat /proc/self/fd/3 && echo held; sleep 0.1; done"


def volumes(place, engine):
    """Made, used, extended, revoked, restored, inspected and removed. Another container is not disturbed."""
    create = ["volume", "create", "--driver", engine.driver]
    engine.command(*create, "-o", f"path={place.base}/one", "-o", "ttl=2h", "-o", "hide=.env", "v1")
    engine.command(*create, "-o", f"path={place.base}/one", "-o", "ro=true", "v2")
    refused = engine.command(*create, "-o", f"path={place.base}/none", "bad", ok=False)
    assert refused.returncode != 0 and "there is no such directory" in refused.stderr, refused
    refused = engine.command(*create, "-o", "colour=red", "bad", ok=False)
    assert refused.returncode != 0 and "unknown option" in refused.stderr, refused
    shown = json.loads(engine.command("volume", "inspect", "v1").stdout)[0]
    assert shown["Status"]["grants"][0]["rules"]["hide"] == [".env"], shown
    engine.command("run", "-d", *engine.options("c1", "v1:/data"), *engine.image, "sh", "-c", READER)
    engine.command("run", "-d", *engine.options("c2", "v2:/data"), *engine.image, "sh", "-c", READER)
    last = lambda name: "\n".join((lambda done: done.stdout + done.stderr)(engine.command("logs", "--tail", "8", name)).splitlines()[-8:])
    for name in ("c1", "c2"):
        wait(f"{name} reads", lambda: "held" in last(name))
    refused = engine.command("exec", "c2", "touch", "/data/one/new", ok=False)
    assert refused.returncode != 0 and not (place.base / "one/new").exists(), refused
    script = "mount -o remount,rw /data && mount -o remount,rw,bind /data; touch /data/one/new"
    refused = engine.command("run", "--rm", "--cap-add", "SYS_ADMIN", *engine.options("c4", "v2:/data:ro"), *engine.image, "sh", "-c", script, ok=False)
    assert "Read-only" in refused.stderr and not (place.base / "one/new").exists(), refused
    place.grantfs("grant", "--view", "v1", place.base / "two")
    wait("the added directory is shown", lambda: "two" in last("c1"))
    engine.command("run", "-d", *engine.options("c3", "v1:/data"), *engine.image, "mapping", "/data/one/file")
    wait("the mapping is read", lambda: "o" in last("c3").split())
    place.grantfs("revoke", "--view", "v1", "one")
    wait("the path and the open descriptor are refused", lambda: last("c1").count("Permission denied") >= 2 and "held" not in last("c1"))
    wait("the mapping is refused", lambda: set(last("c3").split()) == {"refused"})
    assert "held" in last("c2"), last("c2")
    assert engine.command("exec", "c1", "cat", "/data/two/file").stdout == "two\n"
    place.grantfs("restore", "--view", "v1", "one")
    wait("the path is readable again", lambda: engine.command("exec", "c1", "cat", "/data/one/file", ok=False).stdout == "one\n")
    assert engine.command("volume", "rm", "v1", ok=False).returncode != 0
    # Another engine does not know of the containers.
    remove = ["curl", "-sS", "--unix-socket", place.socket, "-X", "POST", "--data", '{"Name":"v1"}', "http://plugin/VolumeDriver.Remove"]
    assert "it is in use by process" in run(*remove).stdout
    engine.command("rm", "-f", *engine.now, "c1", "c3")
    engine.command("volume", "rm", "v1")
    assert not json.loads(place.grantfs("list", "--all", "--view", "v1", "--json", ok=False).stdout or "[]")


def users(place, engine):
    """Owners and modes, and what may be done, are those of a bind mount of the same directory, with each map of users and label."""
    shared = place.base / "shared"
    shared.mkdir(exist_ok=True)
    for owner in (0, 1000, 100000, 101000):
        file = shared / f"of-{owner}"
        file.write_text("content\n")
        os.chown(file, owner, owner)
        file.chmod(0o640)
        (shared / f"in-{owner}").mkdir(exist_ok=True)
        os.chown(shared / f"in-{owner}", owner, owner)
    engine.command("volume", "create", "--driver", engine.driver, "-o", f"path={shared}", "users")
    script = (
        "for place in /data/shared /bind; do cd $place; for file in *; do stat -c '%n %u %g %a %F' $file; done; for file in of-*; do "
        "cat $file >/dev/null 2>&1 && echo read $file; done; for directory in in-*; do touch $directory/new$USE 2>/dev/null && "
        "stat -c '%n %u %g' $directory/new$USE; rm -f $directory/new$USE; done; chown 1 of-0 2>/dev/null && chown 0 of-0 && echo given; "
        "echo end; done")
    for number, more in enumerate(engine.maps):
        done = engine.command(
            "run", "--rm", *more, "-e", f"USE={number}", *engine.options("users", "users:/data" + engine.label), "-v", f"{shared}:/bind",
            *engine.image, "sh", "-c", script)
        ours, theirs, rest = done.stdout.split("end\n")
        assert ours and ours == theirs and not rest, f"{engine.name} {more}:\n{ours}\n{theirs}\n{done.stderr}"
    engine.command("volume", "rm", "users")


def guide(place, engine):
    """The ten lines of docs/guides/containers.md, with other directories and another image."""
    page = (Path(__file__).resolve().parent.parent.parent / "docs/guides/containers.md").read_text()
    lines = page.split("```sh\n", 1)[1].split("```", 1)[0].splitlines()
    assert len(lines) == 10, lines
    # The plugin runs already.
    assert lines[0].startswith("systemctl ")
    script = "\n".join(lines[1:]).replace("/srv/", f"{place.base}/").replace(" debian ", " probe ").replace("-d grantfs", f"-d {engine.driver}")
    done = subprocess.run(
        ["sh", "-c", f"docker() {{ /usr/bin/docker -H '{engine.host}' \"$@\"; }}\n"
         + script.replace("docker run", "docker run --network=none")],
        env={**place.variables, "PATH": f"{PREFIX}/bin:{PATH}"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr.count("Permission denied") == 1, (done.stdout, done.stderr)
    assert done.stdout.count("file\n") == 2, done.stdout


def hooks(place, engine):
    """The hook of docs/guides/containers.md gives containers views by annotations, and takes them away."""
    page = (Path(__file__).resolve().parent.parent.parent / "docs/guides/containers.md").read_text()
    text = page.split("```json\n", 1)[1].split("```", 1)[0]
    text = text.replace('"/usr/bin/grantfs"', f'"{GRANTFS}"').replace('"/srv"', f'"{place.base}", "--socket", "{place.socket}"')
    (engine.base / "hooks/grantfs.json").write_text(text)
    outside = Path(tempfile.mkdtemp(prefix="grantfs-outside."))
    (place.base / "leads-out").symlink_to(outside)
    create = lambda name, *annotations, more=(): [
        "create", "--name", name, "--network=none", *more,
        *(word for one in annotations for word in ("--annotation", f"grantfs.{one}")), *engine.image, "sh", "-c", READER]
    volumes = lambda: run("curl", "-sS", "--unix-socket", place.socket, "--data", "{}", "http://plugin/VolumeDriver.List").stdout.count('"oci-')
    path = f"path={place.base}/one"
    engine.command(*create("h1", "destination=/data", path))
    engine.command(*create("h2", "destination=/data", path, "ro=true", more=["--uidmap", "0:100000:65536"]))
    last = lambda name: "\n".join(engine.command("logs", "--tail", "8", name).stdout.splitlines()[-8:])
    for name in ("h1", "h2"):
        engine.command("start", name)
        wait(f"{name} reads", lambda: "held" in last(name))
    view = "oci-" + engine.command("inspect", "-f", "{{.Id}}", "h1").stdout[:12]
    place.grantfs("grant", "--view", view, place.base / "two")
    assert engine.command("exec", "h1", "cat", "/data/two/file").stdout == "two\n"
    assert engine.command("exec", "h2", "touch", "/data/one/new", ok=False).returncode != 0
    place.grantfs("revoke", "--view", view, "one")
    wait("the path and the descriptor are refused", lambda: "held" not in last("h1"))
    assert "held" in last("h2"), last("h2")
    # Also when its processes are killed, and once more after another start.
    engine.command("kill", "h1")
    wait("the view is gone", lambda: volumes() == 1)
    engine.command("start", "h1")
    wait("h1 reads again", lambda: "held" in last("h1"))
    assert engine.command("exec", "h1", "ls", "/data").stdout == "one\n"
    # A link of the image does not lead out of it.
    engine.command(*create("h4", "destination=/link/data", path))
    engine.command("start", "h4")
    assert engine.command("exec", "h4", "ls", "/usr/share/data").stdout == "one\n" and not Path("/usr/share/data").exists()
    for number, (annotations, reason) in enumerate((
            (("destination=/data", "path=/etc"), "the hook does not allow it"),
            (("destination=/data", f"path={place.base}/leads-out"), "it is not in"),
            (("destination=/data", f"path={place.base}/../etc"), "it is not in"),
            (("destination=/data", f"path={place.base}/none"), "there is no such directory"),
            (("destination=/data", "view=v2"), "unknown annotation"),
            (("destination=/data", "colour=red"), "unknown option"),
            (("destination=/../data", path), "invalid place"),
            (("destination=/bin/busybox", path), "Not a directory"))):
        engine.command(*create(f"h-{number}", *annotations))
        refused = engine.command("start", f"h-{number}", ok=False)
        assert refused.returncode != 0 and reason in refused.stderr, (annotations, refused)
    place.end_plugin(signal.SIGTERM)
    engine.command(*create("h3", "destination=/data", path))
    refused = engine.command("start", "h3", ok=False)
    assert refused.returncode != 0 and "the plugin of volumes does not answer" in refused.stderr, refused
    place.start_plugin()
    engine.command("start", "h3")
    engine.command("rm", "-af", *engine.now)
    wait("all views are gone", lambda: volumes() == 0)
    assert not place.mounts() and not list(outside.iterdir()), place.mounts()
    outside.rmdir()


def restarts(place, engine):
    """Each part ends, also by kill -9, while c2 reads: it never sees an error."""
    place.end_plugin(signal.SIGKILL)
    place.start_plugin()
    place.end_plugin(signal.SIGTERM)
    place.start_plugin()
    before = place.daemons()
    place.grantfs("upgrade", "--all")
    for pid in place.daemons():
        os.kill(pid, signal.SIGKILL)
    wait("another daemon serves", lambda: place.daemons() and not set(place.daemons()) & set(before))
    assert engine.command("exec", "c2", "cat", "/data/one/file").stdout == "one\n"
    done = engine.command("logs", "c2")
    assert "not connected" not in done.stdout + done.stderr and "rror" not in done.stdout + done.stderr, (done.stdout + done.stderr)[-2000:]
    engine.restart()
    # Docker ends its containers then.
    engine.command("rm", "-f", *engine.now, "c2")
    engine.command("volume", "rm", "v2")
    engine.command("volume", "create", "--driver", engine.driver, "v3")
    engine.restart()
    assert "v3" in engine.command("volume", "ls", "-q").stdout.split()
    engine.command("volume", "prune", "-f", *(["-a"] if "-a" in engine.command("volume", "prune", "--help").stdout else []))
    if "v3" in engine.command("volume", "ls", "-q").stdout.split():
        engine.command("volume", "rm", "v3")
    assert not place.mounts(), place.mounts()


def hundred(place, engine):
    """A hundred containers with a volume each: time of a start, memory, and one revocation that reaches all."""
    times = {"volume": [], "bind": []}
    for number in range(100):
        engine.command("volume", "create", "--driver", engine.driver, "-o", f"path={place.base}/one", f"h{number}")
        began = time.monotonic()
        engine.command("run", "-d", *engine.options(f"h{number}", f"h{number}:/data"), *engine.image, "sleep", "1000")
        times["volume"].append(time.monotonic() - began)
        if number % 5 == 0:
            began = time.monotonic()
            engine.command("run", "-d", *engine.options(f"b{number}", f"{place.base}/one:/data"), *engine.image, "sleep", "1000")
            times["bind"].append(time.monotonic() - began)
            engine.command("rm", "-f", f"b{number}")
    memory = 0
    for pid in place.daemons():
        status = Path(f"/proc/{pid}/smaps_rollup").read_text()
        memory += int(next(line.split()[1] for line in status.splitlines() if line.startswith("Pss:")))
    began = time.monotonic()
    place.grantfs("revoke", "--path", place.base / "one")
    took = time.monotonic() - began
    refused = sum(engine.command("exec", f"h{number}", "cat", "/data/one/file", ok=False).returncode != 0 for number in range(100))
    assert refused == 100, refused
    medians = {name: round(statistics.median(values) * 1000) for name, values in times.items()}
    print(f"engines: {engine.name}: start of a container, median: {medians['volume']} ms with a volume, {medians['bind']} ms with a bind mount; "
          f"daemons: {memory // 1024} MB together; one revocation in 100 containers: {took:.2f} s")
    for number in range(100):
        engine.command("rm", "-f", *engine.now, f"h{number}")
        engine.command("volume", "rm", f"h{number}")


def main():
    place = Place()
    engines = []
    try:
        place.start_plugin()
        for kind in (Docker, Podman):
            engine = kind(place)
            engines.append(engine)
            users(place, engine)
            if kind is Docker:
                guide(place, engine)
            else:
                hooks(place, engine)
            volumes(place, engine)
            restarts(place, engine)
            if "--hundred" in sys.argv and kind is Docker:
                hundred(place, engine)
            print(f"engines: {engine.name}: passed")
    except AssertionError:
        for log in (place.base / "plugin.log", place.base / "docker/log"):
            sys.stderr.write(log.read_text()[-3000:] if log.exists() else "")
        raise
    finally:
        for engine in engines:
            engine.end()
        place.end()


main()
