"""Where the work is done: the native directory, mounts of grantfs in each cache mode, bindfs, and directories that were named."""

import json
import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile

from workloads import USER

MODES = ["shared", "exclusive", "none"]
# A mount with cache=shared whose grant has 20 rules. None of them matches what the rows make.
RULED = "20 rules"
RULES = [word for number in range(10) for word in ("--hide", f"*.hidden{number}", "--protect", f"/kept/part{number}/**")]


class Places:
    """Makes everything on entry and takes it away on exit. `directories` maps a place's name to where its work is done, `sources` the name
    of one of grantfs's mounts to the directory that it shows."""

    def __init__(self, base, programs, others):
        self.base = tempfile.mkdtemp(prefix="grantfs-bench.", dir=base)
        self.remarks = []
        self.directories, self.sources = {}, {}
        self._grantfs = str(programs.resolve() / "grantfs")
        self._others = others
        self._mountpoints = []
        self._made = []
        # The user and group that work in a place, if that is another user.
        self._workers = {}
        # The way to query a mount of grantfs, by place: the program, its environment, and its view.
        self._views = {}

    @property
    def names(self):
        return list(self.directories)

    def __enter__(self):
        try:
            self.directories["native"] = self._make("native")
            for mode in MODES:
                self.directories[mode] = self._mount_grantfs(mode, mode)
            self.directories[RULED] = self._mount_grantfs(RULED, "shared", RULES)
            self._mount_as_user()
            if shutil.which("bindfs"):
                source, mountpoint = self._make("source-bindfs"), self._make("mount-bindfs")
                subprocess.run(["bindfs", source, mountpoint], check=True)
                self._mountpoints.append(mountpoint)
                self.directories["bindfs"] = mountpoint
            else:
                self.remarks.append("bindfs is not installed")
            for directory in self._others:
                made = tempfile.mkdtemp(prefix="grantfs-bench.", dir=directory)
                self._made.append(made)
                self.directories[directory] = made
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for made in self._made:
            shutil.rmtree(made, ignore_errors=True)
        for mountpoint in self._mountpoints:
            subprocess.run(["umount", mountpoint] if os.geteuid() == 0 else ["fusermount3", "-u", mountpoint], check=False)
        # Never removes files through a mount that still exists.
        if not any(os.path.ismount(mountpoint) for mountpoint in self._mountpoints):
            shutil.rmtree(self.base, ignore_errors=True)

    def _make(self, name):
        path = pathlib.Path(self.base, name)
        path.mkdir()
        return str(path)

    def _mount_as_user(self):
        """A plain user's own mount, whose daemon has no privilege. Only that user reaches it, so the work there is done by a process of that user's."""
        if os.geteuid() != 0:
            return
        try:
            user = pwd.getpwuid(int(os.environ.get("SUDO_UID", 0)) or pwd.getpwnam("nobody").pw_uid)
        except KeyError:
            self.remarks.append("there is no plain user whose mount could be measured")
            return
        worker = (user.pw_uid, user.pw_gid)
        # By default only root may enter the base directory, and users may be unable to reach the program's directory.
        os.chmod(self.base, 0o711)
        program = self._make("bin") + "/grantfs"
        for name in ("", "d"):
            shutil.copy(self._grantfs + name, program + name)
        own = self._make("user")
        os.chown(own, *worker)
        environment = dict(os.environ, GRANTFS_STORE=own + "/store", HOME=own)
        source, mountpoint = own + "/source", own + "/mount"
        commands = [["mkdir", source, mountpoint], [program, "grant", source, "--view", "user", "--name", "files"],
                    [program, "mount", "user", mountpoint, "-o", "cache=shared"]]
        for words in commands:
            done = subprocess.run(words, env=environment, user=worker[0], group=worker[1], extra_groups=[], capture_output=True, text=True)
            if done.returncode != 0:
                self.remarks.append(f"a user's mount could not be made: {done.stderr.strip()}")
                return
        self._mountpoints.append(mountpoint)
        self._workers[USER] = worker
        self._views[USER] = ([program, "status", "--json", "--view", "user"], environment)
        self.directories[USER] = mountpoint + "/files"

    @property
    def counted(self):
        """The places that tell how many requests they have had."""
        return list(self._views)

    def requests(self, name):
        """How many requests of each kind a place of ours has had so far."""
        words, environment = self._views[name]
        worker = self._workers.get(name)
        identity = {"user": worker[0], "group": worker[1], "extra_groups": []} if worker and os.geteuid() == 0 else {}
        done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True, **identity)
        return json.loads(done.stdout)["mounts"][0]["requests"]

    def by_its_worker(self, name, action):
        """What `action` returns, as far as JSON has it, done by who works in that place. Raises OSError where it fails."""
        worker = self._workers.get(name)
        if worker is None:
            return action()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reading)
                os.setgroups([])
                os.setgid(worker[1])
                os.setuid(worker[0])
                os.environ["HOME"] = self.base + "/user"
                os.write(writing, json.dumps(action()).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        with open(reading, "rb") as pipe:
            said = pipe.read().decode()
        if os.waitpid(child, 0)[1] != 0:
            raise OSError(f"it failed as user {worker[0]}")
        return json.loads(said)

    def _mount_grantfs(self, name, mode, rules=()):
        view = name.replace(" ", "-")
        source, mountpoint = self._make("source-" + view), self._make("mount-" + view)
        environment = dict(os.environ, GRANTFS_STORE=self.base + "/store")
        for words in (["grant", source, "--view", view, "--name", "files", *rules], ["mount", view, mountpoint, "-o", "cache=" + mode]):
            subprocess.run([self._grantfs] + words, env=environment, check=True, stdout=subprocess.DEVNULL)
        self._mountpoints.append(mountpoint)
        self._views[name] = ([self._grantfs, "status", "--json", "--view", view], environment)
        self.sources[name] = source
        return mountpoint + "/files"
