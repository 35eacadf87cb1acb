"""Looks into the program itself: what runs with every request counts no references, takes no memory and asks for no type's metadata.

objdump's listing is searched for calls of the Swift runtime that do. Prints a line; the exit status is 1 if there is such a call, so it can be run alone:
python3 Tests/Benchmarks/bench/hotpath.py .build/release/grantfsd
"""

import collections
import re
import shutil
import subprocess
import sys

# Matched by the demangled name. Rare work is in separate functions: making room when descriptors have run out,
# watching a new directory.
HOT = [
    r"static GrantViewFS\.ViewFS\.(lookup|getattr|open|flush|release|read|write)\(",
    r"closure #[1-6] .* in static GrantViewFS\.ViewFS\.\(fillFiles ",
    r"GrantViewFS\.ViewFS\.release\(",
    r"GrantViewTree\.NodeTree\.(pin|unpin|intern|forget)\(",
    r"GrantViewTree\.NodeIndex\.(find|count)\(",
    r"SlotTable<.*\.(find|element|insert|remove)\(.*OpenFile|<GrantViewTree\.OpenFile> of .*SlotTable.*\.(insert|remove)\(",
    r"GrantViewTree\.OpenFiles\.(add|acquire|drop)\(",
    r"GrantLocks\.LockTable\.(releaseOwner|releaseFile)\(",
    r"GrantCoordinator\.Coordinator\.(enter|leave)\(",
    r"GrantFUSE\.Session\.serve\(",
    r"GrantFUSE\.Request\.(init|reply|send)\b",
    r"static GrantFUSE\.Identity\.(assume|keepSetID)\(",
]
COSTLY = re.compile(
    r"swift_(retain|release|allocObject|bridgeObject|beginAccess|once|unknownObject|dynamicCast|getGenericMetadata|getTypeByMangledName|slowAlloc)")


def sizes_of_functions(program):
    """How many bytes each function with a symbol has."""
    table = subprocess.run(["objdump", "-t", program], capture_output=True, text=True, check=True).stdout
    return {one.group(2): int(one.group(1), 16) for one in re.finditer(r" F \.text\s+([0-9a-f]+)\s+(?:\.hidden )?(\S+)$", table, re.M)}


def functions(program):
    """The costly calls of each function of ours, by mangled name."""
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", program], capture_output=True, text=True, check=True).stdout
    sizes = sizes_of_functions(program)
    found, current, end = {}, None, 0
    for line in listing.splitlines():
        begin = re.match(r"([0-9a-f]+) <(\$s.+)>:$", line)
        if begin:
            current = found.setdefault(begin.group(2), collections.Counter())
            end = int(begin.group(1), 16) + sizes.get(begin.group(2), 0)
        elif not line:
            current = None
        elif current is not None:
            # Code after a function's end that has no symbol belongs to another function.
            address = re.match(r"\s*([0-9a-f]+):", line)
            if address and int(address.group(1), 16) >= end:
                current = None
                continue
            target = re.search(r"(?:call|jmp)\s+[0-9a-f]+ <_?([^>+@]+)", line)
            if target and COSTLY.match(target.group(1)):
                current[target.group(1)] += 1
    return found


def costly_calls(program):
    """How many hot functions there are, and the costly calls in them by readable name; None where objdump or swift is missing."""
    if not shutil.which("objdump") or not shutil.which("swift"):
        return None
    found = functions(program)
    names = list(found)
    readable = subprocess.run(
        ["swift", "demangle", "--compact"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    hot = [(text, found[name]) for name, text in zip(names, readable) if any(re.search(one, text) for one in HOT)]
    return len(hot), {text: calls for text, calls in hot if calls}


def remark(program):
    result = costly_calls(program)
    if result is None:
        return "The way of a request was not looked into: that needs objdump and swift."
    number, calls = result
    if not number:
        return "The way of a request was not looked into: the program has no symbols."
    if not calls:
        return f"The way of a request ({number} functions) calls nothing of the Swift runtime that counts references or takes memory."
    return "The way of a request calls " + "; ".join(f"{dict(what)} in {name[:120]}" for name, what in calls.items())


if __name__ == "__main__":
    print(remark(sys.argv[1]))
    outcome = costly_calls(sys.argv[1])
    sys.exit(1 if outcome is None or not outcome[0] or outcome[1] else 0)
