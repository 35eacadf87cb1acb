"""Processor time of a process and of all that it starts, daemons included, by a control group."""
import os
import pathlib


class ProcessorTime:
    """A control group that counts. Where none can be made, `seconds` is None."""

    def __init__(self, name):
        self.directory = None
        for parent, file in (("/sys/fs/cgroup/cpuacct", "cpuacct.usage"), ("/sys/fs/cgroup", "cpu.stat")):
            if not pathlib.Path(parent, "cgroup.procs").exists():
                continue
            directory = pathlib.Path(parent, name)
            try:
                directory.mkdir(exist_ok=True)
            except OSError:
                continue
            self.directory, self.file = directory, directory / file
            self.before = 0.0
            self.before = self.seconds() or 0.0
            return

    def inside(self, command):
        """The command that runs `command` in the group."""
        if self.directory is None:
            return command
        return ["sh", "-c", 'echo $$ >"$0"; exec "$@"', str(self.directory / "cgroup.procs")] + command

    def seconds(self):
        """Of all that ran in the group since it was made here."""
        if self.directory is None:
            return None
        text = self.file.read_text()
        if self.file.name == "cpuacct.usage":
            total = int(text) / 1e9
        else:
            total = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("usage_usec")) / 1e6
        return total - self.before

    def close(self):
        """Removes the group, unless something still runs in it."""
        if self.directory is None:
            return
        try:
            os.rmdir(self.directory)
        except OSError:
            pass
