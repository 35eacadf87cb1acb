"""What it costs those who write on the host that a mount watches what they do. Printed as a remark."""

import os
import statistics
import subprocess

ROUNDS = 15


def own_writes(programs, places):
    """Writes of 4 KiB over what is there, the quickest that there are, in the directory that `cache=shared` shows and in one that nobody watches, in turn."""
    loops = str(programs.resolve() / "Workloads")
    directories = [places.sources["shared"], places.directories["native"]]
    for directory in directories:
        subprocess.run([loops, "rewrite", "prepare"], cwd=directory, check=True)
    # The daemon watches only inodes in the kernel's cache, so this brings the file into it.
    os.stat(places.directories["shared"] + "/rewritten")

    def nanoseconds(directory):
        return int(subprocess.run([loops, "rewrite"], cwd=directory, check=True, capture_output=True, text=True).stdout)

    ratios = []
    for number in range(ROUNDS):
        # The directories alternate, so that the order favors neither.
        order = directories if number % 2 else directories[::-1]
        taken = {directory: nanoseconds(directory) for directory in order}
        ratios.append(taken[directories[0]] / taken[directories[1]])
    return (
        f"The host's own writes of 4 KiB take {statistics.median(ratios):.3f} times as long where a mount watches them "
        f"({min(ratios):.2f} to {max(ratios):.2f} in {ROUNDS} pairs; at most 1.1 is aimed at).")
