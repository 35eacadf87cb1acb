#!/usr/bin/env python3
"""Makes a stripped program independent of the directory in which it was built: normalise.py PROGRAM

Two hashes cover the debug information, and so the path of the tree: the build id, and Swift's hashes of modules, which
only the compiler reads. The latter become zeros, the former the SHA-1 of the program. The bytes are changed in place,
because objcopy loses the read-only relocations (GNU_RELRO) if it removes a section.
"""
import hashlib
import pathlib
import re
import subprocess
import sys

NOTE_HEADER = 16  # sizes and type of the note, and the name GNU

path = pathlib.Path(sys.argv[1])
program = bytearray(path.read_bytes())
sections = {name: (int(offset, 16), int(size, 16)) for name, offset, size in re.findall(
    r"^ *\[ *\d+\] (\S+) +\S+ +[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+)", subprocess.run(
        ["readelf", "-SW", str(path)], capture_output=True, text=True, check=True).stdout, re.M)}
hashes, identity = sections.get(".swift_modhash"), sections.get(".note.gnu.build-id")
if hashes:
    program[hashes[0]:sum(hashes)] = bytes(hashes[1])
if identity:
    program[identity[0] + NOTE_HEADER:sum(identity)] = bytes(identity[1] - NOTE_HEADER)
    program[identity[0] + NOTE_HEADER:sum(identity)] = hashlib.sha1(program).digest()[:identity[1] - NOTE_HEADER]
path.write_bytes(program)
