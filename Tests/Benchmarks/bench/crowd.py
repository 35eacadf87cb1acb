"""What many do at once: 64 clients of one mount, and a client of one grant while others of a thousand are withdrawn. Printed as remarks."""

import contextlib
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

CLIENTS, GRANTS, WITHDRAWN = 64, 1000, 20


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
