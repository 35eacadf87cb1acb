"""The rows of the table: what is done, and how long it may take, as a multiple of the native time."""

import dataclasses
import pathlib
import shutil
import sqlite3
import subprocess

from timing import observed, spawn, timed
import tree
import work


# The place that is a user's own mount.
USER = "user's mount"


@dataclasses.dataclass
class Workload:
    """One row. `aim` is for cache=shared, `exclusive_aim` for cache=exclusive, `user_aim` for a user's mount; none where nothing was aimed at. `anew`: each run makes
    what it works on, so nothing of an earlier one could be kept, and none goes before it."""

    name: str
    prepare: object
    run: object
    aim: float = None
    exclusive_aim: float = None
    user_aim: float = None
    cold: bool = False
    program: str = None
    anew: bool = False

    def missing(self):
        return self.program if self.program and not shutil.which(self.program) else None

    def aim_for(self, place):
        return {"shared": self.aim, "exclusive": self.exclusive_aim or self.aim, USER: self.user_aim}.get(place)


def all_workloads(programs):
    loops = str(programs.resolve() / "Workloads")

    def loop(name, word, aim=None, exclusive_aim=None, cold=False, user_aim=None):
        def run(directory):
            return int(observed(lambda: subprocess.run([loops, word], cwd=directory, check=True, capture_output=True, text=True).stdout))

        def prepare(directory):
            subprocess.run([loops, word, "prepare"], cwd=directory, check=True)

        return Workload(name, prepare, run, aim, exclusive_aim, user_aim, cold)

    def tool(name, words, aim, exclusive_aim=None, cold=False, prepare=tree.make, user_aim=None):
        return Workload(name, prepare, lambda directory: spawn(words, directory + "/tree"), aim, exclusive_aim, user_aim, cold, words[0])

    def real(name, prepare, run, program):
        return Workload(name, prepare, run, program=program)

    find = ["find", ".", "-printf", "%s %p\\n"]
    grep = ["grep", "-r", tree.NEEDLE, "."]
    status = ["git", "-c", "safe.directory=*", "--no-optional-locks", "status", "--porcelain"]
    return [
        loop("warm: sequential read", "read-sequential", 1.4),
        loop("warm: random 4 KiB read", "read-random", 1.1),
        loop("warm: mapped read", "read-mapped", 6),
        tool("warm: find with sizes", find, 1.2, 1.1),
        tool("warm: git status", status, 1.2, 1.1, prepare=tree.make_repository),
        loop("warm: stat of 3,000 files", "stat"),
        loop("warm: open, read, close of 3,000 files", "open-read-close", 5, 1.5, user_aim=8),
        tool("warm: grep -r", grep, 3.5, 1.3, user_aim=6),
        tool("cold: find with sizes", find, 1.5, cold=True),
        tool("cold: grep -r", grep, 1.5, cold=True),
        loop("cold: sequential read", "read-sequential", 1.1, cold=True),
        loop("cold: random 4 KiB read", "read-random-some", 1.3, cold=True),
        loop("sequential write, 1 MiB", "write-1m", 2, 2.5),
        loop("sequential write, 128 KiB", "write-128k", 2, 2.5),
        loop("4 KiB writes", "write-4k", 3.5, 1.3),
        loop("append of lines", "append"),
        loop("create, write, unlink of 2,000 files", "create-write-unlink", 1.4),
        Workload("untar", tree.make_archive, _untar, 2, 1.5, program="tar", anew=True),
        Workload("rm -rf", tree.make_archive, _remove, 2.5, 2, program="tar", anew=True),
        Workload("SQLite, WAL, small transactions", lambda directory: None, _transactions, 3.5, 1.2, anew=True),
        loop("a request and its answer", "round-trip"),
    ] + work.rows(real)


def _untar(directory):
    taken = spawn(["tar", "-xf", tree.ARCHIVE, "-C", "."], directory)
    shutil.rmtree(directory + "/" + tree.PACKED)
    return taken


def _remove(directory):
    subprocess.run(["tar", "-xf", tree.ARCHIVE, "-C", "."], cwd=directory, check=True, stdin=subprocess.DEVNULL)
    return spawn(["rm", "-rf", tree.PACKED], directory)


def _transactions(directory, number=300):
    """Each inserts one row. WAL with synchronous=NORMAL, so that a transaction is a write and not a wait for the disk."""
    path = directory + "/base.sqlite"
    for ending in ("", "-wal", "-shm"):
        pathlib.Path(path + ending).unlink(missing_ok=True)
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("pragma journal_mode=wal")
    base.execute("pragma synchronous=normal")
    base.execute("create table t(a integer primary key, b text)")

    def insert():
        for row in range(number):
            base.execute("insert into t(b) values(?)", (f"row {row}",))

    taken = timed(insert)
    base.close()
    return taken
