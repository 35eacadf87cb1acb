"""From times to a table."""

import statistics


def summary(workloads, names, times):
    """A row for each workload that ran: milliseconds natively, and for each other place the ratio, its spread, its aim, and whether it is met."""
    rows = []
    for workload in workloads:
        measured = times.get(workload.name)
        if not measured:
            continue
        native = measured["native"]
        places = {}
        for name in (name for name in names[1:] if name in measured):
            ratios = [ours / theirs for ours, theirs in zip(measured[name], native)]
            ratio, aim = statistics.median(ratios), workload.aim_for(name)
            places[name] = {
                "ratio": round(ratio, 2), "lowest": round(min(ratios), 2), "highest": round(max(ratios), 2),
                "milliseconds": round(statistics.median(measured[name]) / 1e6, 2), "aim": aim,
                "passes": None if aim is None else ratio <= aim,
            }
        rows.append({"workload": workload.name, "nativeMilliseconds": round(statistics.median(native) / 1e6, 2), "places": places})
    return rows + _together(rows, times, names)


# All of it as one row: the total wait of a user that runs the workloads in sequence. The aims are those of shared,
# exclusive and a user's mount.
TOGETHER = "real work, all rows together"
TOGETHER_AIMS = {"shared": 1.05, "exclusive": 1.02, "user's mount": 1.1}


def _together(rows, times, names):
    real = [row["workload"] for row in rows if row["workload"].startswith("work: ")]
    if len(real) < 2:
        return []

    def sums(name):
        return [sum(taken) for taken in zip(*(times[workload][name] for workload in real))]

    native, places = sums("native"), {}
    for name in names[1:]:
        if any(name not in times[workload] for workload in real):
            continue
        own = sums(name)
        ratios = [ours / theirs for ours, theirs in zip(own, native)]
        ratio, aim = statistics.median(ratios), TOGETHER_AIMS.get(name)
        places[name] = {
            "ratio": round(ratio, 2), "lowest": round(min(ratios), 2), "highest": round(max(ratios), 2),
            "milliseconds": round(statistics.median(own) / 1e6, 2), "aim": aim, "passes": None if aim is None else ratio <= aim,
        }
    return [{"workload": TOGETHER, "nativeMilliseconds": round(statistics.median(native) / 1e6, 2), "places": places}]


def markdown(document, names):
    machine = document["machine"]
    lines = [
        f"{machine['date']}, Linux {machine['kernel']}, {machine['processor']}, {machine['cores']} cores, {machine['filesystem']}, "
        f"load {machine['load']:.1f}; {document['rounds']} rounds; time over native time, median of pairs",
        "",
        "| workload | native | " + " | ".join(names[1:]) + " | aim |",
        "| --- | --- | " + "--- | " * len(names),
    ]
    lines[-1] = lines[-1].rstrip()
    for row in document["rows"]:
        cells = [row["workload"], f"{row['nativeMilliseconds']} ms"]
        for name in names[1:]:
            place = row["places"].get(name)
            if place is None:
                cells.append("–")
                continue
            mark = {None: "", True: " ✓", False: " ✗"}[place["passes"]]
            cells.append(f"{place['ratio']:.2f}{mark}")
        cells.append(_aims(row["places"]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines + [""] + [f"- {remark}" for remark in document["remarks"]])


def _aims(places):
    shared, exclusive, user = (places.get(name, {}).get("aim") for name in ("shared", "exclusive", "user's mount"))
    if shared is None:
        return ""
    others = [f"{name} ≤ {aim:g}" for name, aim in (("exclusive", exclusive), ("user's mount", user)) if aim is not None and aim != shared]
    return f"≤ {shared:g}" + (f" ({', '.join(others)})" if others else "")
