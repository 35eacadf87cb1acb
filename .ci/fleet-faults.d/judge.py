"""Judges a history: what an administrator was told, and what programs on each host could read.

Times are CLOCK_BOOTTIME in nanoseconds, of one machine. `operations`: dictionaries with `kind` (open or close), `grant` (its number), `begin`, `end`, `status` (the command's exit status; None: it was killed, and
nobody knows what it did) and `hosts`: what was said of each. Operations of one grant never overlap.
"""
import bisect
from reader import RECORD, WRONG

SETTLED = ('confirmed', 'fenced')
WAYS = ('opened anew', 'by a descriptor', 'by a mapping')


class Rules:
    """What may not be read on one host of one grant, by what was said."""

    def __init__(self, operations, grant, host, lease):
        mine = sorted((one for one in operations if one['grant'] == grant), key=lambda one: one['begin'])
        # No read that begins and ends in these succeeds: from, to, why.
        self.shut = []
        # No read of a descriptor opened before the second moment begins after the first.
        self.stale = []
        for index, one in enumerate(mine):
            if one['kind'] != 'close' or one['status'] not in (0, 3):
                continue
            until = next((later['begin'] for later in mine[index + 1:] if later['kind'] == 'open'), None) or 1 << 62
            said = one['hosts'].get(host, 'confirmed' if one['status'] == 0 else 'waiting')
            if said in SETTLED:
                self.shut.append((one['end'], until, f'the host was called {said}'))
                self.stale.append((one['end'], one['begin'], said))
            self.shut.append((one['end'] + int(lease * 1e9), until, 'it was withdrawn a lease ago'))
        self.shut.sort()
        self.stale.sort()
        self.ends = [end for end, _, _ in self.stale]
        self.worst = []
        for _, begin, _ in self.stale:
            self.worst.append(max(begin, self.worst[-1] if self.worst else 0))

    def broken(self, begun, ended, opened):
        """Why such a read must not have succeeded; None when it may."""
        for start, until, why in self.shut:
            # One that a restoration has met on its way may succeed.
            if start < begun and ended < until:
                return f'{why}, {(begun - start) / 1e6:.1f} ms before'
        place = bisect.bisect_left(self.ends, begun)
        if place and opened < self.worst[place - 1]:
            return 'what had been opened before a revocation was confirmed is open again'
        return None


def judge(operations, reads, grants, lease):
    """`reads`: a path for each host. Returns what is wrong, and the number of reads and of those that succeeded."""
    wrong, counts = [], [0, 0]
    for host, (path, start) in sorted(reads.items()):
        rules = [Rules(operations, grant, host, lease) for grant in range(len(grants))]
        with open(path, 'rb') as file:
            file.seek(start)
            data = file.read()
        told = set()
        for begun, ended, opened, grant, way, result in RECORD.iter_unpack(data[:len(data) // RECORD.size * RECORD.size]):
            counts[0] += 1
            if result == WRONG:
                wrong.append({'time': begun, 'host': host, 'grant': grants[grant], 'way': WAYS[way], 'why': 'other bytes than belong there were read'})
            if result:
                continue
            counts[1] += 1
            why = rules[grant].broken(begun, ended, opened)
            # One of a kind is enough.
            if why and (grant, way, why.split(',')[0]) not in told:
                told.add((grant, way, why.split(',')[0]))
                wrong.append({'time': begun, 'host': host, 'grant': grants[grant], 'way': WAYS[way], 'why': why})
    return wrong, counts


def history(operations, events, reads, grants, wrong):
    """For people: everything in its order; reads that one after the other gave the same are one line."""
    lines = []
    for one in operations:
        lines.append((one['begin'], f'begins     {one["command"]}'))
        lines.append((one['end'], f'ends       {one["command"]}: {one["status"]} {one["hosts"]} {one["said"]}'))
    lines += [(time, f'fault      {text}') for time, text in events]
    lines += [(one['time'], f'WRONG      {one["host"]} {one["grant"]} {one["way"]}: {one["why"]}') for one in wrong]
    for host, (path, start) in reads.items():
        last = {}
        with open(path, 'rb') as file:
            file.seek(start)
            data = file.read()
        for begun, ended, opened, grant, way, result in RECORD.iter_unpack(data[:len(data) // RECORD.size * RECORD.size]):
            key = (grant, way, opened if way else 0)
            run = last.get(key)
            if run and run[2] == result:
                run[1], run[3] = begun, run[3] + 1
                continue
            if run:
                lines.append((run[1], f'read       {host} {grants[grant]} {WAYS[way]}: {run[2]}, the last of {run[3]}'))
            last[key] = [begun, begun, result, 1]
            lines.append((begun, f'read       {host} {grants[grant]} {WAYS[way]}: {result}, the first' + (f' of what was opened at {opened / 1e9:.4f}' if way else '')))
        for (grant, way, _), run in last.items():
            lines.append((run[1], f'read       {host} {grants[grant]} {WAYS[way]}: {run[2]}, the last of {run[3]}'))
    return '\n'.join(f'{time / 1e9:.4f} {text}' for time, text in sorted(lines)) + '\n'
