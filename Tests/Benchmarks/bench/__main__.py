"""make bench: the same work on the native directory, through grantfs and through others, in turn, in one run.

Every figure is the median, over the rounds, of the time in a place divided by the native time of the same round.
Timings are no tests: the exit status says whether everything ran, not whether an aim was met.
"""

import argparse
import json
import pathlib
import signal
import sys

import crowd
import host
import hotpath
from machine import describe
from measuring import measure
import picture
from places import Places
from report import markdown, summary
import trace
from workloads import all_workloads


def main():
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="*", metavar="DIR", help="another directory to measure, such as a mount of your own")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is done (default 5)")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="only rows whose name has WORD in it")
    parser.add_argument("--no-cold", action="store_true", help="leave out what drops the caches of the whole machine")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write everything there as JSON as well")
    parser.add_argument("--picture", type=pathlib.Path, metavar="FILE", help="draw it there as well, as SVG")
    parser.add_argument("--base", default="/var/tmp", metavar="DIR", help="where the measured directories are made (default /var/tmp)")
    parser.add_argument("--programs", type=pathlib.Path, default=pathlib.Path(".build/release"), help=argparse.SUPPRESS)
    options = parser.parse_args()

    workloads = [one for one in all_workloads(options.programs) if not options.only or any(word in one.name for word in options.only)]
    if options.no_cold:
        workloads = [one for one in workloads if not one.cold]
    # A signal makes it print the results so far and unmount its mounts.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Places(options.base, options.programs, options.directories) as places:
        times, requests, remarks = measure(workloads, places, options.rounds)
        results = summary(workloads, places.names, times)
        missed = trace.missed(results, requests)
        remarks = places.remarks + remarks + [hotpath.remark(options.programs / "grantfsd")]
        if not options.only:
            remarks += [
                host.own_writes(options.programs, places), crowd.clients(options.programs, places),
                crowd.withdrawals(options.programs, options.base), crowd.rule_changes(options.programs, options.base)]
        document = {"machine": describe(places.base), "rounds": options.rounds, "remarks": remarks, "rows": results, "missed": missed, "requests": requests}
    print(markdown(document, places.names))
    print(trace.markdown(missed))
    if options.picture:
        options.picture.write_text(picture.svg(document, places.names))
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
