"""The rows of the table: what is done, and how long it may take, as a multiple of the native time."""

import dataclasses
import pathlib
import shutil
import sqlite3
import subprocess
import time

import tree


@dataclasses.dataclass
class Workload:
    """One row. `aim` is for cache=shared, `exclusive_aim` for cache=exclusive; none where nothing was aimed at. `anew`: each run makes
    what it works on, so nothing of an earlier one could be kept, and none goes before it."""

    name: str
    prepare: object
    run: object
    aim: float = None
    exclusive_aim: float = None
    cold: bool = False
    program: str = None
    anew: bool = False

    def missing(self):
        return self.program if self.program and not shutil.which(self.program) else None

    def aim_for(self, place):
        return {"shared": self.aim, "exclusive": self.exclusive_aim or self.aim}.get(place)


def _spawn(words, directory):
    before = time.monotonic_ns()
    subprocess.run(words, cwd=directory, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.monotonic_ns() - before


def all_workloads(programs):
    loops = str(programs.resolve() / "Workloads")

    def loop(name, word, aim=None, exclusive_aim=None, cold=False):
        def run(directory):
            return int(subprocess.run([loops, word], cwd=directory, check=True, capture_output=True, text=True).stdout)

        def prepare(directory):
            subprocess.run([loops, word, "prepare"], cwd=directory, check=True)

        return Workload(name, prepare, run, aim, exclusive_aim, cold)

    def tool(name, words, aim, cold=False, prepare=tree.make):
        return Workload(name, prepare, lambda directory: _spawn(words, directory + "/tree"), aim, None, cold, words[0])

    find = ["find", ".", "-printf", "%s %p\\n"]
    grep = ["grep", "-r", tree.NEEDLE, "."]
    status = ["git", "-c", "safe.directory=*", "--no-optional-locks", "status", "--porcelain"]
    return [
        loop("warm: sequential read", "read-sequential", 1.4),
        loop("warm: random 4 KiB read", "read-random", 1.1),
        loop("warm: mapped read", "read-mapped", 6),
        tool("warm: find with sizes", find, 1.2),
        tool("warm: git status", status, 1.2, prepare=tree.make_repository),
        loop("warm: stat of 3,000 files", "stat"),
        loop("warm: open, read, close of 3,000 files", "open-read-close", 1.5),
        tool("warm: grep -r", grep, 1.3),
        tool("cold: find with sizes", find, 1.5, cold=True),
        tool("cold: grep -r", grep, 1.5, cold=True),
        loop("cold: sequential read", "read-sequential", 1.1, cold=True),
        loop("cold: random 4 KiB read", "read-random-some", 1.3, cold=True),
        loop("sequential write, 1 MiB", "write-1m", 2.5),
        loop("sequential write, 128 KiB", "write-128k", 2.5),
        loop("4 KiB writes", "write-4k", 3, 1.3),
        loop("append of lines", "append"),
        loop("create, write, unlink of 2,000 files", "create-write-unlink", 6),
        Workload("untar", tree.make_archive, _untar, 3, program="tar", anew=True),
        Workload("rm -rf", tree.make_archive, _remove, 2, program="tar", anew=True),
        Workload("SQLite, WAL, small transactions", lambda directory: None, _transactions, 2.5, 1.2, anew=True),
        loop("a request and its answer", "round-trip"),
    ]


def _untar(directory):
    taken = _spawn(["tar", "-xf", tree.ARCHIVE, "-C", "."], directory)
    shutil.rmtree(directory + "/" + tree.PACKED)
    return taken


def _remove(directory):
    _spawn(["tar", "-xf", tree.ARCHIVE, "-C", "."], directory)
    return _spawn(["rm", "-rf", tree.PACKED], directory)


def _transactions(directory, number=300):
    """Each inserts one row. WAL with synchronous=NORMAL, so that a transaction is a write and not a wait for the disk."""
    path = directory + "/base.sqlite"
    for ending in ("", "-wal", "-shm"):
        pathlib.Path(path + ending).unlink(missing_ok=True)
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("pragma journal_mode=wal")
    base.execute("pragma synchronous=normal")
    base.execute("create table t(a integer primary key, b text)")
    before = time.monotonic_ns()
    for row in range(number):
        base.execute("insert into t(b) values(?)", (f"row {row}",))
    taken = time.monotonic_ns() - before
    base.close()
    return taken
