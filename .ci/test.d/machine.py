"""What tests may leave on a machine: mounts, processes, users, files, loop devices, network namespaces."""
import os
import pathlib
import re
import subprocess
import time

# Where tests could leave files. The checkout is not looked at: it has .build.
places = ["/tmp", "/var/tmp", "/dev", "/run", "/usr", "/etc", "/var/lib", "/mnt", "/srv", "/opt", "/root", "/home"]
# Caches that programs beside the tests write: the compiler's, the package manager's.
passing = ("/root/.cache", "/tmp/TemporaryDirectory.", "/tmp/_root_.", "/tmp/bash_jobs", "/run/systemd", "/run/udev", "/run/dbus", "/dev/pts", "/dev/shm/sem.", "/root/.swiftpm", "/dev/char", "/dev/vcs")


class State:
    """The machine as it is now."""

    def __init__(self):
        self.processes = processes()
        self.items = {
            "mount": mounts(),
            "user": lines_of("/etc/passwd") | lines_of("/etc/group"),
            "loop device": loop_devices(),
            "network namespace": set(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else set(),
            "file": files(),
        }

    def difference(self, before):
        """A line for each thing that is here now and was not before."""
        left = [f"{kind}: {item}" for kind, items in self.items.items() for item in sorted(items - before.items[kind])]
        left += [f"{kind} is gone: {item}" for kind, items in before.items.items() for item in sorted(items - self.items[kind])
                 if kind in ("user", "mount")]
        # Processes that are ending get two seconds.
        deadline = time.monotonic() + 2
        new = self.processes - before.processes
        while new and time.monotonic() < deadline:
            time.sleep(0.05)
            new &= processes()
        return left + [f"process: {pid} {describe(pid)}" for pid, _ in sorted(new)]


def is_of_tests(line):
    """Whether a line of `difference` is certainly of tests; anything else may be of other programs of the machine."""
    return re.search(r"^process: \d+ \S*grantfs\S* |grantfs-test|/\.grantfs-|fuse\.grantfs", line) is not None


def mounts():
    found = set()
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        after = words.index("-")
        found.add(f"{words[4]} {words[after + 1]}")
    return found


def lines_of(path):
    return {line.split(":")[0] for line in pathlib.Path(path).read_text().splitlines()}


def loop_devices():
    devices = set()
    for backing in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            devices.add(f"{backing.parts[3]} {backing.read_text().strip()}")
        except OSError:
            pass
    return devices


def processes():
    """Programs that run, told by pid and start. This process, its ancestors and threads of the kernel are left out."""
    found, own = set(), ancestors()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in own:
            continue
        try:
            text = pathlib.Path("/proc", entry, "stat").read_text()
        except OSError:
            continue
        fields = text[text.rindex(")") + 2:].split()
        if fields[1] != "2" and int(fields[1]) != os.getpid():
            found.add((int(entry), fields[19]))
    return found


def ancestors():
    pid, found = os.getpid(), set()
    while pid > 0:
        found.add(pid)
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
        pid = int(text[text.rindex(")") + 2:].split()[1])
    return found


def describe(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
    except OSError:
        return ""


def files():
    """The names below the places where tests could leave some, each filesystem by itself."""
    found = set()
    existing = [place for place in places if os.path.isdir(place)]
    output = subprocess.run(["find"] + existing + ["-xdev", "-print0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    for name in output.split(b"\0"):
        text = name.decode(errors="replace")
        if text and not text.startswith(passing):
            found.add(text)
    return found
