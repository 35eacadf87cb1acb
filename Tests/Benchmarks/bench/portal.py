"""A directory that an application was given, through grantfs portal and through the desktop's own portal, beside the directory itself, in turn, in one run.

python3 Tests/Benchmarks/bench/portal.py .build/release/grantfs [--rounds 5] [--files 10000], as root, because what is cold needs the machine's caches dropped. It prints a table for docs/performance.md. Each portal has a session bus of its own, and a permission store.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

from gi.repository import Gio, GLib
from machine import describe

NAME, OBJECT = "org.freedesktop.portal.Documents", "/org/freedesktop/portal/documents"
ORIGINAL, STORE = "/usr/libexec/xdg-document-portal", "/usr/libexec/xdg-permission-store"
APP, EXPORTED = "org.test.Bench", 1 | 2 | 8
BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path=%s</listen>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>"""
WORK = {
    "ls -lR": "ls -lR .",
    "read every file": "find . -type f -print0 | xargs -0 cat",
}


class Session:
    """A bus with a portal that shows a tree to an application."""

    def __init__(self, base, words):
        self.base, self.words, self.children, self.bus = base, words, [], None

    def open(self):
        base = self.base
        for name in ("run", "data", "home", "store"):
            (base / name).mkdir(parents=True, mode=0o700)
        address = f"unix:path={base}/bus"
        self.environment = dict(
            os.environ, DBUS_SESSION_BUS_ADDRESS=address, XDG_RUNTIME_DIR=f"{base}/run", XDG_DATA_HOME=f"{base}/data",
            HOME=f"{base}/home", GRANTFS_STORE=f"{base}/store")
        (base / "bus.conf").write_text(BUS % f"{base}/bus")
        self.start(["dbus-daemon", f"--config-file={base}/bus.conf", "--nofork", "--nopidfile"])
        self.until(lambda: self.connect(address))
        self.start([STORE])
        self.start(self.words)
        self.until(lambda: self.has("org.freedesktop.impl.portal.PermissionStore") and self.has(NAME))

    def connect(self, address):
        flags = Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION
        try:
            self.bus = Gio.DBusConnection.new_for_address_sync(address, flags, None, None)
        except GLib.Error:
            return False
        return True

    def start(self, words):
        log = open(self.base / "log", "a")
        self.children.append(subprocess.Popen(words, env=self.environment, stdout=log, stderr=log))

    @staticmethod
    def until(condition):
        end = time.monotonic() + 20
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError("a session did not come up within 20 s")
            time.sleep(0.02)

    def has(self, name):
        return self.bus.call_sync(
            "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameHasOwner", GLib.Variant("(s)", (name,)), None, 0,
            -1, None)[0]

    def show(self, tree):
        """Where the application has it."""
        descriptors = Gio.UnixFDList.new()
        opened = os.open(tree, os.O_PATH)
        descriptors.append(opened)
        os.close(opened)
        answer, _ = self.bus.call_with_unix_fd_list_sync(
            NAME, OBJECT, NAME, "AddFull", GLib.Variant("(ahusas)", ([0], EXPORTED, APP, ["read"])), None, 0, -1, descriptors, None)
        return self.base / "run/doc/by-app" / APP / answer[0][0] / tree.name

    def end(self):
        if self.bus:
            self.bus.close_sync(None)
        for child in reversed(self.children):
            child.terminate()
            child.wait(30)


def took(work, place, is_cold):
    if is_cold:
        os.sync()
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    start = time.monotonic()
    subprocess.run(["sh", "-c", f"{WORK[work]} >/dev/null"], cwd=place, check=True)
    return (time.monotonic() - start) * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=10000)
    options = parser.parse_args()
    base = pathlib.Path(tempfile.mkdtemp(prefix="grantfs-bench.", dir="/var/tmp"))
    sessions = []
    try:
        tree = base / "tree"
        for number in range(options.files):
            directory = tree / f"d{number % 100}"
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"f{number}").write_text(f"{number}\n" * 200)
        places = {"native": tree}
        for name, words in (("grantfs portal", [options.program.resolve(), "portal"]), ("xdg-document-portal", [ORIGINAL])):
            sessions.append(Session(base / name.replace(" ", "-"), words))
            sessions[-1].open()
            places[name] = sessions[-1].show(tree)
        for place in places.values():
            took("ls -lR", place, False)
        print(", ".join(f"{key} {value}" for key, value in describe(tree).items()) + f"; {options.rounds} rounds, {options.files} files\n")
        print("| what | native, least (median) | grantfs portal, least | × native: by the least, by the median of pairs | xdg-document-portal, least | × native |")
        print("| --- | --- | --- | --- | --- | --- |")
        for is_cold in (False, True):
            for work in WORK:
                times = {name: [] for name in places}
                if not is_cold:
                    for place in places.values():
                        took(work, place, False)
                for _ in range(options.rounds):
                    for name, place in places.items():
                        times[name].append(took(work, place, is_cold))
                native = times["native"]
                cells = [f"{min(native):.0f} ms ({statistics.median(native):.0f})"]
                for name in list(places)[1:]:
                    ratio = statistics.median(there / here for there, here in zip(times[name], native))
                    cells += [f"{min(times[name]):.0f} ms", f"{min(times[name]) / min(native):.2f}, {ratio:.2f}"]
                print(f"| {'cold' if is_cold else 'warm'}: {work} | {' | '.join(cells)} |", flush=True)
    finally:
        for session in sessions:
            session.end()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
