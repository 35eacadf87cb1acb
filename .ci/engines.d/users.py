"""Users of containers: what a volume shows and permits is what a bind mount of the same directory does, with each map of users."""

import difflib
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

from place import PATH, PREFIX, Podman, podman_settings, run, wait

# Whether set-id bits are set, cleared and inherited.
SET_ID = True

# What scripts of containers call.
SHELL = r"""
look() { busybox stat -c '%n %u %g %a %F' "$@"; }
try() { if "$@" >/dev/null 2>&1; then echo "yes $*"; else echo "no $*"; fi; }
write() { echo more >>$1; }
make() { echo new >$1; }
"""

# Shows each file and directory, and tries what may be done with it.
PROBE = SHELL + r"""
set_id() { [ -z "$SET_ID" ] || try "$@"; }
cd /data/tree
cat /proc/self/uid_map
busybox id
for file in of-*; do
    look $file
    try cat $file
    try write $file
    try busybox touch -d 2001-01-01 $file
    try busybox chmod 0604 $file
    set_id busybox chmod 4755 $file
    look $file
    try write $file
    look $file
    set_id busybox chgrp 8 $file
    set_id busybox chmod 2755 $file
    look $file
    set_id busybox chmod 6755 $file
    try busybox chown 1:1 $file
    look $file
    set_id busybox chmod 6755 $file
    try busybox chgrp 1001 $file
    try busybox chown 70000 $file
    look $file
    try write $file
    look $file
done
for place in in-*; do
    new=$place/new
    look $place
    try ls $place
    try make $new
    try busybox mkdir $new.d
    set_id busybox chgrp 8 $new.d
    set_id busybox chmod 2775 $new.d
    try make $new.d/file
    try busybox mkdir $new.d/d
    look $new $new.d $new.d/*
    try busybox ln $new $new.hard
    try busybox ln -s $new $new.soft
    try busybox mv $new $new.moved
    try busybox chown 1000:1000 $new.moved
    try busybox mkfifo $new.fifo
    try busybox mknod $new.device c 1 3
    try busybox mknod $new.whiteout c 0 0
    look $new.*
    try rm -f $place/old
    try busybox mv $place/kept $place/renamed
    try busybox rmdir $place/empty
    set_id busybox chmod 2775 $place
    set_id busybox chown 1:1 $place
    look $place
done
for file in rm-*; do try busybox unlink $file; done
"""


def make_tree(place, directory):
    """Files and directories of each owner with several modes, and with access lists."""
    directory.mkdir()
    directory.chmod(0o1777)
    # Those that a container maps to 0, 1, 1000 and its last.
    inside = [(place.first_uid + number, place.first_gid + number) for number in (0, 1, 1000, 65535)]
    for owner in [*((number, number) for number in (0, 1, 1000, 65534)), *inside]:
        for mode in (0o640, 0o604, 0o666):
            file = directory / f"of-{owner[0]}-{mode:o}"
            file.write_text("content\n")
            file.chmod(mode)
            os.chown(file, *owner)
        (directory / f"rm-{owner[0]}").touch()
        os.chown(directory / f"rm-{owner[0]}", *owner)
        for mode in (0o750, 0o1777, 0o2775):
            parent = directory / f"in-{owner[0]}-{mode:o}"
            (parent / "empty").mkdir(parents=True)
            for name in ("old", "kept"):
                (parent / name).touch()
                os.chown(parent / name, *owner)
            os.chown(parent, *owner)
            parent.chmod(mode)
    root, user, group = f"u:{place.first_uid}", f"u:{place.first_uid + 1000}", f"g:{place.first_gid + 1001}"
    for name, rule in (("root", root), ("user", user), ("group", group)):
        file = directory / f"of-list-{name}"
        file.write_text("content\n")
        file.chmod(0o600)
        run("setfacl", "-m", f"{rule}:rw", file)
    parent = directory / "in-list"
    (parent / "empty").mkdir(parents=True)
    run("setfacl", "-m", f"{user}:rwx,d:{user}:rwx,d:{group}:r", parent)


def found(directory):
    """What the host has in the end."""
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        attributes = {name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)}
        text = path.read_text() if stat.S_ISREG(status.st_mode) else ""
        yield f"{path.relative_to(directory)} {status.st_uid} {status.st_gid} {status.st_mode:o} {status.st_rdev} {text!r} {attributes}"


def mapped(place, engine):
    """Owners, modes, what each user inside may do, and what is on the host afterwards are those of a bind mount."""
    if not shutil.which("setfacl", path=PATH):
        return "setfacl is not installed"
    base = place.base / f"mapped-{engine.name}"
    base.mkdir()
    for number, more in enumerate(engine.maps):
        seen = {}
        for kind in ("volume", "bind"):
            directory = base / f"{kind}{number}" / "tree"
            directory.parent.mkdir()
            make_tree(place, directory)
            volume = f"{directory.parent}:/data"
            if kind == "volume":
                engine.create(f"mapped{number}", f"path={directory}")
                volume = f"mapped{number}:/data{engine.label}"
            output = engine.once([*more, "-e", f"SET_ID={'yes' if SET_ID else ''}", *engine.options("mapped", volume)], PROBE)
            if kind == "volume":
                engine.command("volume", "rm", f"mapped{number}")
            seen[kind] = [*output.splitlines(), *found(directory)]
        assert len(seen["bind"]) > 300, seen["bind"]
        differences = list(difflib.unified_diff(seen["bind"], seen["volume"], "bind", "volume", lineterm="", n=0))
        assert not differences, "\n".join([f"{engine.name} {more}: {len(differences)} lines differ", *differences[:60]])
    return None


class Rootless(Podman):
    """Podman of the trials' user."""
    name = "rootless"

    def prepare(self):
        self.user = self.place.user
        self.socket = self.base / "grantfs.sock"
        self.plugin = None
        for directory in ("home", "run", "mount", "tree/src"):
            (self.base / directory).mkdir(parents=True)
        (self.base / "run").chmod(0o700)
        (self.base / "tree/src/file").write_text("content\n")
        self.variables = {
            "PATH": f"{PREFIX}/bin:{PATH}", "HOME": str(self.base / "home"), "XDG_RUNTIME_DIR": str(self.base / "run"),
            "TMPDIR": str(self.base / "run"), "GRANTFS_STORE": str(self.base / "store"), **podman_settings(self.base, self.socket, self.place.name)}
        for path in (self.base, *self.base.rglob("*")):
            os.chown(path, self.user.pw_uid, self.user.pw_gid)
        settings = self.place.base / "fuse.conf"
        settings.write_text("user_allow_other\n")
        # Users may not open the machine's device everywhere.
        device = self.place.base / "fuse"
        if not device.exists():
            os.mknod(device, stat.S_IFCHR, os.makedev(10, 229))
            device.chmod(0o666)
        # Rootless Podman has a mount namespace of its own, which gets later mounts from shared ones only. The host gets none of these.
        self.namespace = subprocess.Popen(
            ["unshare", "-m", "--propagation", "slave", "sh", "-c",
             'mount --make-rshared / && mount --bind "$1" /etc/fuse.conf && mount --bind "$2" /dev/fuse && echo ready && exec sleep infinity',
             "sh", str(settings), str(device)],
            stdout=subprocess.PIPE, text=True)
        assert self.namespace.stdout.readline() == "ready\n"
        self.as_user = [
            "nsenter", "-m", "-t", f"{self.namespace.pid}", "setpriv", "--reuid", f"{self.user.pw_uid}", "--regid", f"{self.user.pw_gid}",
            "--init-groups"]

    def command(self, *words, ok=True):
        return self.run("/usr/bin/podman", *words, ok=ok)

    def run(self, *words, ok=True):
        return run(*self.as_user, *words, ok=ok, env=self.variables)

    def start_plugin(self):
        self.plugin = subprocess.Popen(
            [*self.as_user, "grantfs", "volume-plugin", "--socket", str(self.socket)], env=self.variables,
            stderr=open(self.place.base / "plugin.log", "a"))
        wait("the user's plugin listens", self.socket.exists)

    def end(self):
        self.command("rm", "-af", "-t", "0", ok=False)
        # Ends the process that keeps the user namespace.
        self.command("system", "migrate", ok=False)
        if self.plugin:
            self.plugin.send_signal(signal.SIGTERM)
            self.plugin.wait(30)
        self.namespace.kill()
        self.namespace.wait(30)


USE = """
cat /data/src/file
echo new >/data/src/new && busybox stat -c '%n %u %g %a' /data/src /data/src/file /data/src/new
busybox chmod 600 /data/src/new && echo chmod
busybox chown 5:5 /data/src/new && echo chown
rm /data/src/new && echo removed
"""


def rootless(place):
    """A user's own mount, and the plugin of that user, in rootless Podman."""
    if not shutil.which("newuidmap", path=PATH):
        return "newuidmap is not installed"
    engine = Rootless(place)
    try:
        mounted(engine)
        plugged(engine)
    finally:
        engine.end()
    return None


def mounted(engine):
    """Root inside is that user outside. Other users inside need allow_other."""
    view, tree = engine.base / "mount", engine.base / "tree"
    use = lambda directory, *more: engine.once([*more, *engine.options("one", f"{directory}:/data")], USE)
    engine.run("grantfs", "grant", "--view", "job", tree / "src")
    engine.run("grantfs", "mount", "job", view, "-o", "recover")
    # A user's daemon cannot give files away.
    wanted = use(tree).replace("chown\n", "chown: /data/src/new: Operation not permitted\n")
    assert "removed" in wanted and use(view) == wanted, (use(view), wanted)
    assert "Permission denied" in use(view, "--user", "1000:1000") and "content" in use(tree, "--user", "1000:1000")
    refused = engine.command("run", "-d", "--userns=keep-id", *engine.options("one", f"{view}:/data"), *engine.image, "true", ok=False)
    assert refused.returncode != 0 and "ermission denied" in refused.stderr, refused
    engine.command("rm", "-f", "one", ok=False)
    engine.command("run", "-d", *engine.options("one", f"{view}:/data"), *engine.image, "sleep", "1000")
    revoked(engine, "job")
    engine.run("grantfs", "unmount", view)
    engine.run("grantfs", "mount", "job", view, "-o", "recover,allow_other")
    for more in (["--userns=keep-id"], ["--user", "1000:1000"]):
        assert "content" in use(view, *more) and use(view, *more) == use(tree, *more), (more, use(view, *more), use(tree, *more))
    engine.run("grantfs", "unmount", view)


def plugged(engine):
    engine.start_plugin()
    engine.create("work", f"path={engine.base}/tree/src")
    # The plugin mounts with allow_other, because fuse.conf permits it.
    for more in ([], ["--userns=keep-id"]):
        assert "removed" in engine.once([*more, *engine.options("one", "work:/data")], USE), more
    engine.command("run", "-d", *engine.options("one", "work:/data"), *engine.image, "sleep", "1000")
    revoked(engine, "work")
    engine.command("volume", "rm", "work")
    mounts = Path(f"/proc/{engine.namespace.pid}/mounts").read_text().splitlines()
    assert not any(str(engine.base) in line and "fuse.grantfs" in line for line in mounts), mounts


def revoked(engine, view):
    """Revokes and restores a directory of the running container `one`, and removes it."""
    read = lambda: engine.command("exec", "one", "cat", "/data/src/file", ok=False)
    assert read().stdout == "content\n"
    engine.run("grantfs", "revoke", "--view", view, "src")
    assert "Permission denied" in read().stderr
    engine.run("grantfs", "restore", "--view", view, "src")
    assert read().stdout == "content\n"
    engine.command("rm", "-f", *engine.now, "one")
