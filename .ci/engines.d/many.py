"""A hundred containers with a volume each, and times of starts beside those of a bind mount."""

import os
import signal
import statistics
import time
from pathlib import Path

import hooks
from place import PREFIX, run, wait

COUNT = 100
# Of starts in turn.
ROUNDS = 24
# Reads a file once, so that the kernel has its page. At a signal it reads by a second open descriptor, which is at the beginning.
HOLDER = """exec 3</data/one/file 4<&- 4</data/one/file
read line <&3 && echo "read $line"
trap 'cat <&4; echo "ended $?"' USR1
while :; do sleep 1000 & wait $!; done"""


def timed(times, kind, start):
    began = time.monotonic()
    start()
    times.setdefault(kind, []).append(time.monotonic() - began)


def medians(times):
    return ", ".join(f"{round(statistics.median(values) * 1000)} ms {kind}" for kind, values in times.items())


def memory(place):
    """MB of the programs of volumes, shared pages counted once: those of the mounts, and the plugin."""
    sizes = {"mounts": 0, "plugin": 0}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if not os.readlink(process / "exe").startswith(f"{PREFIX}/") or not place.owns(process):
                continue
            lines = (process / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kind = "plugin" if int(process.name) == place.plugin.pid else "mounts"
        sizes[kind] += int(next(line.split()[1] for line in lines if line.startswith("Pss:")))
    return {kind: round(size / 1024) for kind, size in sizes.items()}


def hundred(place, engine):
    """A hundred containers with a volume each: time of a start, memory, and one revocation that reaches all."""
    times = {}
    shown = lambda name: (lambda done: done.stdout + done.stderr)(engine.command("logs", name))
    names = [f"h{number}" for number in range(COUNT)]
    for number, name in enumerate(names):
        engine.create(name, f"path={place.base}/one")
        start = lambda kind, volume: timed(
            times, kind, lambda: engine.command("run", "-d", *engine.options(name, volume), *engine.image, "sh", "-c", HOLDER))
        if number % 2 == 0:
            start("with a bind mount", f"{place.base}/one:/data/one")
            engine.command("rm", "-f", *engine.now, name)
        start("with a volume", f"{name}:/data")
    for name in names:
        wait(f"{name} has read", lambda: "read one" in shown(name), 20)
    sizes = memory(place)
    pids = [int(word) for word in engine.command("inspect", "-f", "{{.State.Pid}}", *names).stdout.split()]
    began = time.monotonic()
    place.grantfs("revoke", "--path", place.base / "one")
    took = time.monotonic() - began
    # Each reads now, for the first time by this descriptor, and not before the command has returned.
    for pid in pids:
        os.kill(pid, signal.SIGUSR1)
    for name in names:
        output = wait(f"{name} has tried", lambda: (lambda text: "ended" in text and text)(shown(name)), 20)
        assert "Permission denied" in output and "ended 1" in output and output.count("one\n") == 1, (name, output)
    print(f"engines: {engine.name}: start of a container, median: {medians(times)}; {COUNT} mounts: {sizes['mounts']} MB of memory, "
          f"plugin: {sizes['plugin']} MB; one revocation for {COUNT} containers: {took:.2f} s, and no open file is readable afterwards")
    engine.command("rm", "-f", *engine.now, *names)
    engine.command("volume", "rm", *names)
    assert not place.mounts(), place.mounts()


def starts(place, engine):
    """Time of a start with the annotations of the hook, with nothing, with a bind mount, and with a volume, in turn."""
    hooks.install(place, engine)
    engine.create("starts", f"path={place.base}/one")
    # The volume is mounted already while another container uses it.
    engine.command("run", "-d", *engine.options("keeper", "starts:/data"), *engine.image, "sleep", "1000")
    annotations = hooks.annotations("destination=/data", f"path={place.base}/one")
    kinds = {
        "without": [], "with a bind mount": ["-v", f"{place.base}/one:/data/one"], "with the hook": annotations,
        "with a volume in use": ["-v", "starts:/data"]}
    times = {}
    for _ in range(ROUNDS):
        for kind, words in kinds.items():
            timed(times, kind, lambda: engine.command(
                "run", "-d", "--name", "one", "--network=none", *engine.more, *words, *engine.image, "sleep", "1000"))
            if kind != "without":
                assert engine.command("exec", "one", "cat", "/data/one/file").stdout == "one\n", kind
            engine.command("rm", "-f", *engine.now, "one")
    print(f"engines: {engine.name}: start of a container, median of {ROUNDS}: {medians(times)}")
    engine.command("rm", "-f", *engine.now, "keeper")
    engine.command("volume", "rm", "starts")
    assert not place.mounts(), place.mounts()
