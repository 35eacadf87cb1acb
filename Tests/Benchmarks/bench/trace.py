"""Where an aim is missed: how much of the time is requests that somebody waits for."""

# The kernel sends these without waiting for a reply.
NOBODY_WAITS = {"RELEASE", "RELEASEDIR", "FORGET", "BATCH_FORGET", "INTERRUPT"}
# The row with the time of a request and its reply in a place, and its number of requests: Workloads/reading.c, attributes.
ROUND_TRIP, ROUND_TRIPS = "a request and its answer", 5000


def missed(rows, requests):
    """A row for each aim that a place of ours misses. Milliseconds, all medians: what it takes beyond the native time, and the part of it
    that is requests which are waited for, each as long as the cheapest one; None where that was not measured. What a request makes the
    host's filesystem do again, and what the kernel does for a mount alone, is the rest."""
    row = next((row for row in rows if row["workload"] == ROUND_TRIP), None)
    trips = {name: place["milliseconds"] / ROUND_TRIPS for name, place in row["places"].items()} if row else {}
    found = []
    for row in rows:
        for name, place in row["places"].items():
            if place["passes"] is not False:
                continue
            counts = _of(row["workload"], name, requests)
            waited = {kind: count for kind, count in counts.items() if kind not in NOBODY_WAITS}
            found.append({
                "workload": row["workload"], "place": name, "ratio": place["ratio"], "aim": place["aim"],
                "more": round(place["milliseconds"] - row["nativeMilliseconds"], 2), "requests": counts, "waited": sum(waited.values()),
                "inRequests": round(sum(waited.values()) * trips[name], 2) if name in trips else None,
            })
    return found


def _of(workload, name, requests):
    """Of one workload, or of all together where it is the row of that."""
    if workload in requests:
        return requests[workload].get(name, {})
    counts = {}
    for other, places in requests.items():
        if other.startswith("work: "):
            for kind, count in places.get(name, {}).items():
                counts[kind] = counts.get(kind, 0) + count
    return counts


def markdown(found):
    if not found:
        return ""
    lines = [
        "", "| missed | × native | aim | ms more than natively | requests waited for | ms as round trips | the rest | of |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        kinds = sorted(((kind, count) for kind, count in one["requests"].items() if kind not in NOBODY_WAITS), key=lambda pair: -pair[1])
        told = ", ".join(f"{count:,} {kind}" for kind, count in kinds[:7]) + (" and others" if len(kinds) > 7 else "")
        trips, rest = ("–", "–") if one["inRequests"] is None else (f"{one['inRequests']:.1f}", f"{one['more'] - one['inRequests']:.1f}")
        lines.append(
            f"| {one['workload']}, {one['place']} | {one['ratio']:.2f} | ≤ {one['aim']:g} | {one['more']:.1f} | {one['waited']:,} | {trips} | {rest} | "
            f"{told or 'none'} |")
    return "\n".join(lines)
