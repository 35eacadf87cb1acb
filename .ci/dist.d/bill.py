#!/usr/bin/env python3
"""Makes and checks the bill of materials of a program, as CycloneDX JSON.

    bill.py make PROGRAM PACKAGED VERSION   prints the bill. PACKAGED is the stripped program, SOURCE_DATE_EPOCH the time
    bill.py check BILL PROGRAM [PACKAGED]   compares a bill with the symbols and strings of a program
    bill.py self-test BILL PROGRAM          changes the bill in many ways, each of which the check must find

Versions are those of dpkg and of the toolchain (SWIFT). The check uses the program alone, so it finds a wrong bill.
A program without symbols is checked by its strings and the libraries that it needs.
"""
import copy
import dataclasses
import datetime
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import uuid


class Fault(Exception):
    pass


@dataclasses.dataclass
class Part:
    """A library that is linked statically. `symbol` is found in every program that contains it, and in no other."""
    name: str
    symbol: str
    licence: str = ""
    # A file of the Debian package that contains it, or "" for a part of the toolchain.
    file: str = ""
    # A phrase of the package's copyright file that confirms the licence.
    phrase: str = ""
    # Found in a program without symbols.
    string: str = ""


PARTS = [
    Part("swift", r"swift_retain", "Apache-2.0 WITH Swift-exception"),
    Part("swift-corelibs-libdispatch", r"dispatch_async", "Apache-2.0 WITH Swift-exception"),
    # Swift's runtime contains its containers and its demangler.
    Part("llvm", r"_ZN.*4llvm\w+", "Apache-2.0 WITH LLVM-exception"),
    Part("toml++", r"_ZN?[A-Z]*4toml2v\d\w+", "MIT", "/usr/include/toml++/toml.h", "Expat", r"N4toml2v\d"),
    Part("libstdc++", r"__cxa_throw", "GPL-3.0-or-later WITH GCC-exception-3.1", "libstdc++.a", "GCC Runtime Library Exception", r"St9exception"),
    Part("libgcc", r"_Unwind_RaiseException", "GPL-3.0-or-later WITH GCC-exception-3.1", "libgcc_eh.a", "GCC Runtime Library Exception"),
    Part("glibc-startup", r"_start", "LGPL-2.1-or-later", "Scrt1.o", "Lesser General Public"),
]
# Libraries that the program does not contain. If it ever does, they become parts.
FOREIGN = [
    Part("swift-foundation", r"\$s(?:10Foundation|20FoundationEssentials)\w+"), Part("CoreFoundation", r"CFRetain"), Part("icu", r"(?:ucol|uloc|u)_\w*open\w*"),
    Part("sqlite", r"sqlite3_open(?:_v2)?"), Part("libfuse", r"fuse_session_new\w*"), Part("libseccomp", r"seccomp_init"), Part("ncurses", r"initscr"),
    Part("curl", r"curl_easy_init"), Part("jansson", r"json_loads"), Part("libmicrohttpd", r"MHD_start_daemon"), Part("gnutls", r"gnutls_init"),
    Part("systemd", r"sd_bus_open"), Part("openssl", r"SSL_new"), Part("zlib", r"deflateInit2?_"), Part("libxml2", r"xmlReadMemory"),
    Part("glibc", r"__libc_start_main(?:_impl)?"), Part("jemalloc", r"je_malloc"), Part("mimalloc", r"mi_malloc"),
]
# Licences of libraries that are linked dynamically, by the name of the source package.
LICENCES = {
    "fuse3": "LGPL-2.1-only", "sqlite3": "blessing", "libseccomp": "LGPL-2.1-only", "ncurses": "X11-distribute-modifications-variant",
    "glibc": "LGPL-2.1-or-later", "curl": "curl", "jansson": "MIT", "libmicrohttpd": "LGPL-2.1-or-later", "gnutls28": "LGPL-2.1-or-later",
    "systemd": "LGPL-2.1-or-later",
}
LOADED = rb"\0(lib[a-z]+\.so\.\d+)(?=\0)"


def run(*words):
    try:
        result = subprocess.run(words, capture_output=True, text=True, errors="replace", env={**os.environ, "LC_ALL": "C"})
    except FileNotFoundError:
        raise Fault(f"{words[0]} is not installed: run .ci/packages build package") from None
    if result.returncode != 0:
        raise Fault(f"{' '.join(words)} failed: {result.stderr.strip()}")
    return result.stdout


class Program:
    """The facts of a program."""

    def __init__(self, path):
        if not pathlib.Path(path).is_file():
            raise Fault(f"there is no program {path}: run make release")
        self.bytes = pathlib.Path(path).read_bytes()
        symbols = subprocess.run(["nm", "--defined-only", "-p", path], capture_output=True, text=True, errors="replace").stdout
        self.symbols = set(re.findall(r"^[0-9a-f]* ?[A-Za-z] (.*)$", symbols, re.M))
        self.parts, self.versions = {}, {}
        self.needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", path))) - {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
        self.loaded = {text.decode() for text in re.findall(LOADED, self.bytes)} - self.needed

    def contains(self, part):
        """Whether the program contains a part, or None if this program cannot tell."""
        if part.name not in self.parts:
            if self.symbols:
                pattern = re.compile(part.symbol)
                self.parts[part.name] = part.symbol in self.symbols or re.escape(part.symbol) != part.symbol and any(map(pattern.fullmatch, self.symbols))
            else:
                self.parts[part.name] = re.search(part.string.encode(), self.bytes) is not None if part.string else None
        return self.parts[part.name]

    def version(self, pattern):
        if pattern not in self.versions:
            found = re.search(pattern.encode(), self.bytes)
            self.versions[pattern] = found and found[1].decode()
        return self.versions[pattern]


class Debian:
    """A file's Debian package."""

    def __init__(self, file):
        file = os.path.realpath(file)
        # Debian 12 records some files below /lib, which is a link to /usr/lib.
        for way in (file, file.removeprefix("/usr")):
            owner = subprocess.run(["dpkg-query", "-S", way], capture_output=True, text=True).stdout
            if owner:
                break
        else:
            raise Fault(f"no Debian package contains {file}: build with the libraries of Debian's packages")
        self.name = owner.split(":")[0]
        fields = "${Version}\t${Architecture}\t${source:Package}"
        self.version, self.architecture, self.source = run("dpkg-query", "-W", "-f", fields, owner.rsplit(": ", 1)[0]).splitlines()[0].split("\t")

    def url(self):
        quoted = self.name.replace("+", "%2B")
        return f"pkg:deb/debian/{quoted}@{self.version.replace('+', '%2B').replace(':', '%3A')}?arch={self.architecture}"

    def copyright(self):
        folder = pathlib.Path("/usr/share/doc", self.name)
        file = folder / "copyright"
        if not file.exists():
            raise Fault(f"{file} is missing: install {self.name} with its documents")
        return " ".join(file.read_text(errors="replace").split())


def component(name, version, licence, linkage, url=None, properties=(), scope="required"):
    entry = {"type": "library", "bom-ref": f"{linkage}:{name}", "name": name}
    if version:
        entry["version"] = version
    entry["scope"] = scope
    if licence:
        entry["licenses"] = [{"expression": licence}]
    if url:
        entry["purl"] = url
    entry["properties"] = [{"name": "grantfs:linkage", "value": linkage}] + [{"name": f"grantfs:{key}", "value": value} for key, value in properties]
    return entry


def static_component(part, compiler):
    if not part.file:
        version = compiler["clang"] if part.name == "llvm" else compiler["swift"]
        repository = {"llvm": "llvm-project"}.get(part.name, part.name)
        return component(part.name, version, part.licence, "static", f"pkg:github/swiftlang/{repository}@{compiler['tag']}", [("toolchain", compiler["tag"])])
    package = Debian(part.file if part.file.startswith("/") else run("g++", f"-print-file-name={part.file}").strip())
    if part.phrase.lower() not in package.copyright().lower():
        raise Fault(f"the copyright file of {package.name} does not contain “{part.phrase}”: correct the licence of {part.name} in .ci/dist.d/bill.py")
    return component(part.name, package.version, part.licence, "static", package.url(), [("package", package.name), ("source", package.source)])


def make(program_path, packaged_path, version):
    program = Program(program_path)
    if not program.symbols:
        raise Fault(f"{program_path} has no symbols: give the program as make release built it")
    foreign = [part.name for part in FOREIGN if program.contains(part)]
    if foreign:
        raise Fault(f"the program contains {', '.join(foreign)}: add them to PARTS in .ci/dist.d/bill.py")
    swift = os.environ.get("SWIFT", "swift")
    target = json.loads(run(swift, "-print-target-info"))
    tools = os.path.dirname(os.path.realpath(shutil.which(swift) or swift))
    clang = re.search(r"clang version (\S+)", run(os.path.join(tools, "clang"), "--version"))
    compiler = {"swift": re.search(r"Swift version (\S+)", target["compilerVersion"])[1], "tag": target.get("swiftCompilerTag", ""), "clang": clang[1]}
    parts = [static_component(part, compiler) for part in PARTS if program.contains(part)]
    cache = run("/sbin/ldconfig", "-p")
    libraries = dict(reversed(re.findall(r"^\s*(\S+) .*=> (\S+)$", cache, re.M)))
    for name in sorted(program.needed):
        if name not in libraries:
            raise Fault(f"{name} is not installed: run .ci/packages build run")
        package = Debian(libraries[name])
        if package.source not in LICENCES:
            raise Fault(f"{name} is of {package.source}, whose licence is unknown: add it to LICENCES in .ci/dist.d/bill.py")
        parts.append(component(name, package.version, LICENCES[package.source], "dynamic", package.url(), [("package", package.name), ("source", package.source)]))
    # The user's machine may have any version of these, or none.
    parts += [component(name, "", "", "loaded", scope="optional") for name in sorted(program.loaded)]
    name = pathlib.Path(program_path).name
    digest = hashlib.sha256(pathlib.Path(packaged_path).read_bytes()).hexdigest()
    when = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip() or "unknown"
    bill = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {
            "timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application", "bom-ref": name, "name": name, "version": version,
                "hashes": [{"alg": "SHA-256", "content": digest}], "licenses": [{"expression": "Apache-2.0"}],
                "properties": [{"name": "grantfs:commit", "value": commit}],
            },
        },
        "components": parts,
        "dependencies": [{"ref": name, "dependsOn": [part["bom-ref"] for part in parts]}] + [{"ref": part["bom-ref"]} for part in parts],
    }
    bill = {"bomFormat": bill["bomFormat"], "specVersion": "1.5", "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(bill))}", **bill}
    return bill


def faults(bill, program, digest=None):
    """Each difference between a bill and a program."""
    if bill.get("bomFormat") != "CycloneDX" or bill.get("specVersion") != "1.5" or not re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill.get("serialNumber", "")):
        yield "it is not CycloneDX 1.5"
        return
    parts = bill["components"]
    linked = {}
    for part in parts:
        linkage = next((entry["value"] for entry in part.get("properties", []) if entry["name"] == "grantfs:linkage"), "")
        linked.setdefault(linkage, {})[part["name"]] = part
        if linkage != "loaded" and not (part.get("version") and part.get("licenses", [{}])[0].get("expression")):
            yield f"{part['name']} has no version or no licence"
    references = [part["bom-ref"] for part in parts]
    own = bill["metadata"]["component"]["bom-ref"]
    depends = next((entry.get("dependsOn", []) for entry in bill["dependencies"] if entry["ref"] == own), [])
    if len(set(references)) != len(references) or sorted(depends) != sorted(references):
        yield "its references do not fit its components"
    static = linked.get("static", {})
    known = {part.name for part in PARTS + FOREIGN}
    for name in set(static) - known:
        yield f"it names {name}, for which there is no check"
    for part in PARTS + FOREIGN:
        contains = program.contains(part)
        if contains is not None and contains != (part.name in static):
            yield f"the program contains {part.name}, and the bill does not name it" if contains else f"it names {part.name}, which the program does not contain"
    for linkage, found in (("dynamic", program.needed), ("loaded", program.loaded)):
        if set(linked.get(linkage, {})) != found:
            yield f"the program's {linkage} libraries are {', '.join(sorted(found))}, those of the bill {', '.join(sorted(linked.get(linkage, {})))}"
    for name, pattern, taken in (
        ("swift", r"Swift version (\d[\d.]*)", lambda version: version),
        ("libstdc++", r"GCC: \(Debian ([^)]+)\)", lambda version: version),
        ("llvm", r"clang version (\d[\d.]*)", lambda version: version),
        ("toml++", r"N4toml2v(\d)", lambda version: version.split(".")[0]),
    ):
        found = program.version(pattern)
        if found and name in static and taken(static[name].get("version", "")) != found:
            yield f"{name} is {found} in the program and {static[name].get('version')} in the bill"
    if digest and bill["metadata"]["component"]["hashes"][0]["content"] != digest:
        yield "it is of another program: the SHA-256 differs"


def self_test(bill, program):
    missed = []

    def expect(title, change):
        other = copy.deepcopy(bill)
        change(other)
        if not list(faults(other, program, bill["metadata"]["component"]["hashes"][0]["content"])):
            missed.append(title)

    def without(other, name):
        other["components"] = [part for part in other["components"] if part["name"] != name]
        other["dependencies"][0]["dependsOn"] = [part["bom-ref"] for part in other["components"]]

    def alter(other, name, key, value):
        next(part for part in other["components"] if part["name"] == name)[key] = value

    def add(other, name):
        other["components"].append(component(name, "1", "MIT", "static"))
        other["dependencies"][0]["dependsOn"].append(f"static:{name}")
    for name in [part["name"] for part in bill["components"]]:
        expect(f"no {name}", lambda other: without(other, name))
    for part in FOREIGN:
        expect(f"{part.name} added", lambda other: add(other, part.name))
    for name in ("swift", "libstdc++", "llvm", "toml++"):
        expect(f"another version of {name}", lambda other: alter(other, name, "version", "0.1"))
    expect("no licence", lambda other: alter(other, "swift", "licenses", [{}]))
    expect("another program", lambda other: other["metadata"]["component"]["hashes"][0].update(content="0" * 64))
    return missed


def main(words):
    if len(words) == 4 and words[0] == "make":
        print(json.dumps(make(*words[1:]), indent=2, ensure_ascii=False))
        return 0
    if len(words) in (3, 4) and words[0] in ("check", "self-test"):
        bill, program = json.loads(pathlib.Path(words[1]).read_text()), Program(words[2])
        if words[0] == "self-test":
            found = [f"the check does not find: {title}" for title in self_test(bill, program)]
        else:
            found = list(faults(bill, program, hashlib.sha256(pathlib.Path(words[-1]).read_bytes()).hexdigest() if len(words) == 4 else None))
        for line in found:
            print(f"bill of materials: {line}", file=sys.stderr)
        return 1 if found else 0
    print(__doc__, file=sys.stderr)
    return 2


try:
    sys.exit(main(sys.argv[1:]))
except (Fault, KeyError) as error:
    print(f"bill of materials: {error}", file=sys.stderr)
    sys.exit(1)
