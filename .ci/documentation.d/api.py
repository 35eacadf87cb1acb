#!/usr/bin/env python3
"""Compares the public declarations of the library with recorded ones: api.py [--record] RECORD SYMBOLS...

SYMBOLS are symbol graphs of swift-symbolgraph-extract. RECORD has one declaration on each line, after the name of its
module and type. `api.py --self-test` checks the comparison.
"""
import json
import pathlib
import sys

# Targets whose declarations another module exports: programs find them there.
EXPORTED = {"GrantMounts": "GrantAdministration"}
HEADER = """# The public declarations of the library. `.ci/documentation --record-api` writes this file, and docs/stability.md explains it.
"""


def declarations(graph):
    """A line for each public symbol. Attributes such as `@MainActor` and `@available` are part of a declaration."""
    module = EXPORTED.get(graph["module"]["name"], graph["module"]["name"])
    for symbol in graph["symbols"]:
        # Members that a protocol of another module gives are not this module's declarations.
        if "::SYNTHESIZED::" in symbol["identifier"]["precise"]:
            continue
        text = "".join(part["spelling"] for part in symbol.get("declarationFragments", []))
        place = ".".join([module, *symbol["pathComponents"][:-1]])
        retired = any(entry.get("isUnconditionallyDeprecated") for entry in symbol.get("availability", []))
        yield f"{place}\t{' '.join(text.split())}{' [deprecated]' if retired else ''}"
    # Conformances: their removal breaks a program too.
    names = {symbol["identifier"]["precise"]: ".".join([module, *symbol["pathComponents"]]) for symbol in graph["symbols"]}
    for relation in graph["relationships"]:
        if relation["kind"] == "conformsTo" and relation["source"] in names:
            target = names.get(relation["target"], relation.get("targetFallback", relation["target"]))
            yield f"{names[relation['source']]}\t: {target}"


def read(files):
    return sorted({line for file in files for line in declarations(json.loads(pathlib.Path(file).read_text()))})


def recorded(path):
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def compare(old, new):
    """What a program that uses `old` loses with `new`, and what it gains."""
    return [line for line in old if line not in set(new)], [line for line in new if line not in set(old)]


def self_test():
    def graph(declaration):
        fragments = [{"spelling": declaration}]
        return {"module": {"name": "M"}, "relationships": [{"kind": "conformsTo", "source": "s", "target": "x", "targetFallback": "Swift.Sendable"}],
                "symbols": [{"identifier": {"precise": "s"}, "pathComponents": ["T", "f()"], "declarationFragments": fragments}]}
    old, new = sorted(declarations(graph("func f()"))), sorted(declarations(graph("func f() throws")))
    assert old == ["M.T\tfunc f()", "M.T.f()\t: Swift.Sendable"], old
    assert compare(old, old) == ([], [])
    assert compare(old, new) == (["M.T\tfunc f()"], ["M.T\tfunc f() throws"])


def main(words):
    if words == ["--self-test"]:
        self_test()
        return 0
    record = words[:1] == ["--record"]
    words = words[record:]
    if len(words) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    path, now = pathlib.Path(words[0]), read(words[1:])
    if not now:
        print("documentation: the symbol graphs have no public declaration", file=sys.stderr)
        return 1
    if record:
        path.write_text(HEADER + "".join(line + "\n" for line in now))
        print(f"documentation: {len(now)} public declarations are recorded in {path}")
        return 0
    then = recorded(path)
    if not then:
        print(f"documentation: no public declarations are recorded in {path}, so they are not compared: .ci/documentation --record-api")
        return 0
    lost, gained = compare(then, now)
    for title, lines in (("removed or changed, which breaks programs", lost), ("new", gained)):
        for line in lines:
            print(f"documentation: {title}: {line.replace(chr(9), ': ', 1)}")
    if lost or gained:
        print("documentation: the public declarations differ from the recorded ones: docs/stability.md has the rules, "
              "`.ci/documentation --record-api` records them")
        return 1
    print(f"documentation: {len(now)} public declarations are as recorded")
    return 0


sys.exit(main(sys.argv[1:]))
