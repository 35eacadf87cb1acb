"""The table as a picture (SVG): for each row a bar a place, how many times as long as natively, on a scale in which each doubling is as wide."""

import html
import math

COLOURS = ["#2b6cb0", "#2f855a", "#b7791f", "#805ad5", "#718096", "#c53030", "#319795", "#4a5568"]
LEFT, RIGHT, TOP, BAR, GAP, WIDTH = 300, 60, 96, 9, 12, 620
LEAST, MOST = 0.5, 64


def svg(document, names):
    names = [name for name in names[1:] if any(name in row["places"] for row in document["rows"])]
    rows = document["rows"]
    step = BAR * len(names) + GAP
    height = TOP + step * len(rows) + 40
    width = LEFT + WIDTH + RIGHT
    machine = document["machine"]
    title = "Time over the native directory's"
    note = (f"{machine['date']}, Linux {machine['kernel']}, {machine['processor']}, {machine['cores']} cores, {machine['filesystem']}, load {machine['load']:.1f}; "
            f"median of {document['rounds']} pairs; shorter is better")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{title}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="17" font-weight="bold" fill="#1a202c">{title}</text>',
        f'<text x="16" y="46" fill="#4a5568">{html.escape(note)}</text>',
    ]
    place = 16
    for number, name in enumerate(names):
        label = html.escape(_short(name))
        parts.append(f'<rect x="{place}" y="58" width="11" height="11" fill="{COLOURS[number % len(COLOURS)]}"/>')
        parts.append(f'<text x="{place + 16}" y="68" fill="#1a202c">{label}</text>')
        place += 36 + 7 * len(_short(name))
    bottom = TOP + step * len(rows)
    value = LEAST
    while value <= MOST:
        x = _x(value)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="{"#4a5568" if value == 1 else "#e2e8f0"}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" fill="#4a5568">{value:g}</text>')
        value *= 2
    for index, row in enumerate(rows):
        y = TOP + step * index
        middle = y + (step - GAP) / 2 + 4
        parts.append(f'<text x="{LEFT - 10}" y="{middle:.1f}" text-anchor="end" fill="#1a202c">{html.escape(row["workload"])}</text>')
        for number, name in enumerate(names):
            cell = row["places"].get(name)
            if cell is None:
                continue
            ratio = cell["ratio"]
            start, end = sorted((_x(1), _x(ratio)))
            top = y + BAR * number
            parts.append(f'<rect x="{start:.1f}" y="{top}" width="{max(1.5, end - start):.1f}" height="{BAR - 1}" fill="{COLOURS[number % len(COLOURS)]}">'
                         f'<title>{html.escape(row["workload"])}, {html.escape(_short(name))}: {ratio:g}</title></rect>')
            parts.append(f'<text x="{max(end, _x(1)) + 4:.1f}" y="{top + BAR - 1}" font-size="8.5" fill="#4a5568">{ratio:.2f}</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def _x(ratio):
    ratio = min(max(ratio, LEAST), MOST)
    return LEFT + WIDTH * (math.log2(ratio) - math.log2(LEAST)) / (math.log2(MOST) - math.log2(LEAST))


def _short(name):
    """A directory that was named goes by its last part."""
    return name.rstrip("/").rsplit("/", 1)[-1]
