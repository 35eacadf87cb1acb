"""Does the work in all places in turn, round after round."""

import os
import pathlib
import subprocess
import sys
import time

from places import MODES

OURS = ["native"] + MODES


def measure(workloads, places, rounds):
    """The nanoseconds of each round, by workload and place; and remarks on what was left out. Ended early, what was done until then."""
    times, remarks = {}, []
    try:
        _measure(workloads, places, rounds, times, remarks)
    except KeyboardInterrupt:
        remarks.append("ended early")
    return times, remarks


def _measure(workloads, places, rounds, times, remarks):
    for workload in workloads:
        before = time.monotonic()
        if workload.cold and os.geteuid() != 0:
            remarks.append(f"“{workload.name}” needs root, who may drop the kernel's caches")
            continue
        missing = workload.missing()
        if missing:
            remarks.append(f"“{workload.name}” needs {missing}")
            continue
        print(workload.name, end=" ", flush=True, file=sys.stderr)
        directories = {}
        for name, directory in places.directories.items():
            if _works(lambda: places.by_its_worker(name, lambda: workload.prepare(directory)), workload, name, remarks):
                directories[name] = directory
        times[workload.name] = _rounds(workload, places, directories, rounds, remarks)
        print(f" {time.monotonic() - before:.0f} s", file=sys.stderr)


def _works(action, workload, name, remarks):
    """Whether somebody else's place can do it: if not, that is said and the others go on. Ours and the native one have to."""
    try:
        action()
    except (OSError, subprocess.CalledProcessError) as error:
        if name in OURS:
            raise
        remarks.append(f"“{workload.name}” failed in {name}: {error}")
        return False
    return True


def _rounds(workload, places, directories, rounds, remarks):
    times = {name: [] for name in directories}
    order = list(directories)
    for _ in range(rounds):
        for name in list(order):
            if not _works(lambda: times[name].append(_time(workload, places, name, directories[name])), workload, name, remarks):
                order.remove(name)
                del times[name]
        # Nobody always comes after the same one.
        order = order[1:] + order[:1]
        print(".", end="", flush=True, file=sys.stderr)
    return times


def _time(workload, places, name, directory):
    if workload.cold:
        _drop_caches()
    elif not workload.anew:
        # What is warm is what was just done; the round of the other places takes longer than names are kept.
        places.by_its_worker(name, lambda: workload.run(directory))
    return places.by_its_worker(name, lambda: workload.run(directory))


def _drop_caches():
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
