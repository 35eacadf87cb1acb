"""PostgreSQL in a container, under deaths of its volume's daemon."""

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path

from place import run, wait

CLIENTS = 6
# Of each client in a round, so many that a round outlasts a death.
TRANSACTIONS = 300
# Six deaths within a minute would end the mount. An upgrade begins a new count.
ROUNDS = ["kill", "kill", "kill", "upgrade", "kill", "kill", "kill"]
SUMS = """select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches),
    (select sum(tbalance) from pgbench_tellers), (select sum(delta) from pgbench_history)"""


class Server:
    """A server whose data directory is in the volume `database`, and whose image has links to the host's programs."""

    def __init__(self, place, engine, programs):
        self.engine, self.programs = engine, programs
        base = place.base / "postgres"
        data, self.socket, root = base / "data", base / "socket", base / "root"
        user = pwd.getpwnam("postgres")
        for directory in (data, self.socket):
            directory.mkdir(parents=True)
            os.chown(directory, user.pw_uid, user.pw_gid)
            directory.chmod(0o700)
        for name in ("data", "socket", "usr", "etc", "proc", "dev", "sys", "tmp"):
            (root / name).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        for name in ("bin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")
        for name in ("passwd", "group"):
            shutil.copy(f"/etc/{name}", root / "etc")
        run("tar", "-C", root, "-cf", base / "image.tar", ".")
        engine.command("import", base / "image.tar", "postgres-probe")
        engine.create("database", f"path={data}")
        self.options = [
            *engine.options("postgres", "database:/data"), "-v", f"{self.socket}:/socket", "-v", "/usr:/usr:ro", "--user", "postgres",
            "--shm-size=256m", "postgres-probe"]

    def once(self, program, *words):
        self.engine.command("run", "--rm", *self.options, f"{self.programs}/{program}", *words, "-D", "/data/data")

    def start(self):
        # One segment for the whole log: a kill while a file is created may give EIO.
        self.once("initdb", "-k", "-A", "trust", "--wal-segsize=128")
        self.engine.command(
            "run", "-d", *self.options, f"{self.programs}/postgres", "-D", "/data/data", "-k", "/socket", "-c", "listen_addresses=",
            "-c", "checkpoint_timeout=30s")
        # A client that is too early would be logged as an error.
        wait("the server is ready", lambda: "ready to accept connections" in self.log())

    def stop(self):
        """Gives the server's log."""
        self.engine.command("stop", "-t", "20", "postgres")
        log = self.log()
        self.engine.command("rm", "postgres")
        return log

    def log(self):
        done = self.engine.command("logs", "postgres")
        return done.stdout + done.stderr

    def words(self, program, *words):
        return [f"{self.programs}/{program}", "-h", str(self.socket), "-U", "postgres", *words]

    def client(self, program, *words, ok=True):
        return run(*self.words(program, *words), ok=ok)

    def ask(self, question):
        return self.client("psql", "-AtXc", question, "postgres").stdout.strip()


def deaths(place, engine):
    """Clients see no error, and the data is consistent, while the daemon is killed again and again, and upgraded."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"))
    if not found:
        return "PostgreSQL is not installed"
    server = Server(place, engine, found[-1].parent)
    server.start()
    server.client("pgbench", "-i", "-q", "-s", "2", "postgres")
    rows = lambda: int(server.ask("select count(*) from pgbench_history"))
    for number, change in enumerate(ROUNDS):
        bench = subprocess.Popen(
            server.words("pgbench", "-n", "-c", f"{CLIENTS}", "-j", "2", "-t", f"{TRANSACTIONS}", "postgres"), text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        (mountpoint, before), = ((mountpoint, pid) for mountpoint, pid in place.daemons().items() if mountpoint.endswith("/database"))
        total = number * CLIENTS * TRANSACTIONS
        wait("the clients are at work", lambda: rows() > total + CLIENTS)
        if change == "kill":
            os.kill(before, signal.SIGKILL)
        assert bench.poll() is None, "the round ended before the death"
        if change == "upgrade":
            place.grantfs("upgrade", mountpoint)
        out, errors = bench.communicate(timeout=60)
        assert bench.returncode == 0 and "number of failed transactions: 0 " in out and "rror" not in errors, out + errors
        assert rows() == total + CLIENTS * TRANSACTIONS
        wait("another daemon serves", lambda: place.daemons().get(mountpoint, before) != before)
    sums = server.ask(SUMS).split("|")
    assert len(set(sums)) == 1, sums
    server.client("pg_amcheck", "--install-missing", "--heapallindexed", "postgres")
    assert "COPY public.pgbench_history" in server.client("pg_dumpall").stdout
    log = server.stop()
    assert "database system is shut down" in log and not any(word in log for word in ("ERROR", "FATAL", "PANIC", "WARNING")), log
    server.once("pg_checksums", "--check")
    engine.command("volume", "rm", "database")
    return None
