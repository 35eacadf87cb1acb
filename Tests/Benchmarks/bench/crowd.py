"""Many at once: 64 clients of one mount, a client of one grant while others of a thousand are withdrawn, and 100,000 known files whose rules change.
Printed as remarks."""

import contextlib
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from places import RULES

CLIENTS, GRANTS, WITHDRAWN = 64, 1000, 20
FOLDERS, FILES, CHANGES = 220, 455, 5


def clients(programs, places):
    """Requests a second of one client and of many, in `cache=shared`."""
    loops, directory = str(programs.resolve() / "Workloads"), places.directories["shared"]
    subprocess.run([loops, "round-trip", "prepare"], cwd=directory, check=True)

    def rate(number):
        before = time.monotonic()
        children = [subprocess.Popen([loops, "round-trip"], cwd=directory, stdout=subprocess.DEVNULL) for _ in range(number)]
        for child in children:
            child.wait()
        return 5000 * number / (time.monotonic() - before)

    one = statistics.median(rate(1) for _ in range(3))
    return f"One client gets {one:,.0f} answers a second, {CLIENTS} at once {rate(CLIENTS):,.0f} together."


def withdrawals(programs, base):
    """How much longer a client's round trip takes while others' grants are withdrawn, beside commands that withdraw nothing."""
    grantfs, loops = str(programs.resolve() / "grantfs"), str(programs.resolve() / "Workloads")
    with tempfile.TemporaryDirectory(prefix="grantfs-crowd.", dir=base) as own:
        environment = dict(os.environ, GRANTFS_STORE=own + "/store")

        def run(*words):
            return subprocess.run([grantfs, *words], env=environment, check=True, capture_output=True, text=True).stdout

        mountpoint = own + "/mount"
        os.mkdir(mountpoint)
        for number in range(GRANTS):
            source = pathlib.Path(own, "sources", str(number))
            source.mkdir(parents=True)
            run("grant", str(source), "--name", str(number))
        run("mount", "default", mountpoint)
        with contextlib.ExitStack() as stack:
            stack.callback(subprocess.run, ["umount", mountpoint], check=False)
            client = mountpoint + "/0"
            subprocess.run([loops, "round-trip", "prepare"], cwd=client, check=True)

            def loop():
                return int(subprocess.run([loops, "round-trip"], cwd=client, check=True, capture_output=True, text=True).stdout) / 5000e3

            def beside(words):
                """The client's microseconds, while a command is run for one grant after another."""
                taken = []
                for number in range(1, WITHDRAWN + 1):
                    child = subprocess.Popen([grantfs, words, str(number)], env=environment, stdout=subprocess.DEVNULL)
                    taken.append(loop())
                    child.wait()
                return statistics.median(taken)

            quiet, asked, revoked = statistics.median(loop() for _ in range(WITHDRAWN)), beside("repair"), beside("revoke")
        return (
            f"A round trip in one of {GRANTS:,} grants takes {quiet:.1f} µs, {asked:.1f} beside commands that only look, "
            f"{revoked:.1f} beside withdrawals of others.")


def rule_changes(programs, base):
    """How long a change of rules takes, and a revocation, with 100,000 files known to the mount."""
    grantfs = str(programs.resolve() / "grantfs")
    with tempfile.TemporaryDirectory(prefix="grantfs-crowd.", dir=base) as own:
        environment = dict(os.environ, GRANTFS_STORE=own + "/store")

        def run(*words):
            before = time.monotonic()
            subprocess.run([grantfs, *words], env=environment, check=True, stdout=subprocess.DEVNULL)
            return time.monotonic() - before

        source, mountpoint = pathlib.Path(own, "source"), own + "/mount"
        for folder in range(FOLDERS):
            path = source / f"d{folder // 11}" / f"e{folder}"
            path.mkdir(parents=True)
            for file in range(FILES):
                path.joinpath(f"file-{file}.txt").touch()
        os.mkdir(mountpoint)
        run("grant", str(source), "--name", "files", *RULES)
        run("mount", "default", mountpoint)
        with contextlib.ExitStack() as stack:
            stack.callback(subprocess.run, ["umount", mountpoint], check=False)
            # `-size` needs the attributes of each file.
            subprocess.run(["find", mountpoint, "-size", "+1G"], check=True)
            changed = statistics.median(run("set", "files", "--hide", f"*.other{number}", *RULES[2:]) for number in range(CHANGES))
            revoked = run("revoke", "files")
        return f"With {FOLDERS * FILES:,} known files a change of 20 rules takes {changed:.2f} s, and a revocation {revoked:.2f} s."
