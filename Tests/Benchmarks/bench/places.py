"""Where the work is done: the native directory, mounts of grantfs in each cache mode, bindfs, and directories that were named."""

import os
import pathlib
import shutil
import subprocess
import tempfile

MODES = ["shared", "exclusive", "none"]


class Places:
    """Makes everything on entry and takes it away on exit. `directories` maps a place's name to where its work is done, `sources` a cache mode to
    the directory that its mount shows."""

    def __init__(self, base, programs, others):
        self.base = tempfile.mkdtemp(prefix="grantfs-bench.", dir=base)
        self.remarks = []
        self.directories, self.sources = {}, {}
        self._grantfs = str(programs.resolve() / "grantfs")
        self._others = others
        self._mountpoints = []
        self._made = []

    @property
    def names(self):
        return list(self.directories)

    def __enter__(self):
        try:
            self.directories["native"] = self._make("native")
            for mode in MODES:
                self.directories[mode] = self._mount_grantfs(mode)
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
        # Never through a mount that is still there.
        if not any(os.path.ismount(mountpoint) for mountpoint in self._mountpoints):
            shutil.rmtree(self.base, ignore_errors=True)

    def _make(self, name):
        path = pathlib.Path(self.base, name)
        path.mkdir()
        return str(path)

    def _mount_grantfs(self, mode):
        source, mountpoint = self._make("source-" + mode), self._make("mount-" + mode)
        environment = dict(os.environ, GRANTFS_STORE=self.base + "/store")
        for words in (["grant", source, "--view", mode, "--name", "files"], ["mount", mode, mountpoint, "-o", "cache=" + mode]):
            subprocess.run([self._grantfs] + words, env=environment, check=True, stdout=subprocess.DEVNULL)
        self._mountpoints.append(mountpoint)
        self.sources[mode] = source
        return mountpoint + "/files"
