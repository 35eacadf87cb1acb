"""A client of `grantfs mcp` with the protocol's own SDK: client.py PROGRAM VERSION. Exits with 1 if an answer is not as expected."""
import asyncio
import contextlib
import inspect
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client

try:
    from mcp.client.client import Client
except ImportError:
    Client = None

PROGRAM, VERSION = sys.argv[1:3]
TOOLS = {"request_directory", "list_directories", "release_directory", "extend_directory", "narrow_directory", "explain_path"}
CAN_ASK = "elicitation_callback" in inspect.signature(ClientSession.__init__).parameters


def require(condition, what):
    if not condition:
        raise AssertionError(what)


def member(value, *names):
    """The SDK's second generation has other names for the same members."""
    for name in names:
        if hasattr(value, name):
            return getattr(value, name)
    return (getattr(value, "model_extra", None) or {}).get(names[0])


class Result:
    def __init__(self, result):
        self.is_error = member(result, "isError", "is_error")
        self.values = member(result, "structuredContent", "structured_content")
        self.text = result.content[0].text


class Session:
    """A client of either generation."""

    def __init__(self, client):
        self.client = client

    async def call(self, tool, **arguments):
        return Result(await self.client.call_tool(tool, arguments))

    async def tools(self):
        return (await self.client.list_tools()).tools


@contextlib.asynccontextmanager
async def connected(base, *options, decide=None):
    arguments = ["mcp", "--store", f"{base}/store", *options]
    parameters = StdioServerParameters(command=PROGRAM, args=arguments, env=dict(os.environ))
    callbacks = {"elicitation_callback": decide} if CAN_ASK and decide else {}
    if Client:
        async with Client(parameters, mode="legacy" if VERSION < "2026" else VERSION, **callbacks) as client:
            require(client.protocol_version == VERSION, client.protocol_version)
            yield Session(client)
    else:
        async with stdio_client(parameters) as (reading, writing), ClientSession(reading, writing, **callbacks) as client:
            require((await client.initialize()).protocolVersion == VERSION, "the version")
            yield Session(client)


def answer(decision):
    async def decide(context, parameters):
        if decision == "decline":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"decision": decision})

    return decide


def mounts(base):
    return [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if f" {base}/" in line]


def wait_until(condition, what):
    end = time.monotonic() + 60
    while not condition():
        require(time.monotonic() < end, what)
        time.sleep(0.05)


def servers(base):
    """The processes `grantfs mcp` of this store."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"mcp" in words and f"{base}/store".encode() in words:
                    found.append(int(entry.name))
    return found


async def fails(awaitable, what):
    try:
        await awaitable
    except Exception as error:  # the SDK's generations have errors of their own
        if isinstance(error, AssertionError):
            raise
        return
    raise AssertionError(f"no error: {what}")


async def every_tool(base):
    work, policy = f"{base}/work", f"{base}/policy"
    async with connected(base, "--ask", "never", "--policy", policy) as session:
        tools = await session.tools()
        require({tool.name for tool in tools} == TOOLS, tools)
        require(all(member(tool, "inputSchema", "input_schema")["type"] == "object" for tool in tools), tools)
        granted = await session.call("request_directory", path=work, access="read-write", duration="1h", hide=["secret"])
        require(not granted.is_error, granted.text)
        place = pathlib.Path(granted.values["path"])
        require(granted.values["expires"] and (place / "file").read_text() == "text" and not (place / "secret").exists(), place)
        listed = await session.call("list_directories")
        require([item["path"] for item in listed.values["directories"]] == [str(place)], listed.values)
        explained = await session.call("explain_path", path=f"{work}/secret")
        require(explained.values["verdict"] == "hidden", explained.values)
        narrowed = await session.call("narrow_directory", path="work", access="read-only", duration="10m")
        require(narrowed.values["access"] == "read-only", narrowed.values)
        try:
            (place / "file").write_text("changed")
            raise AssertionError("a narrowed directory can be changed")
        except OSError:
            pass
        extended = await session.call("extend_directory", path=work)
        require(extended.values["expires"] is None, extended.values)
        released = await session.call("release_directory", path="work")
        require(not released.is_error and not place.exists(), released.text)
        for tool, arguments in [
            ("request_directory", {"path": f"{base}/other"}),
            ("request_directory", {"path": f"{base}/none"}),
            ("release_directory", {"path": "work"}),
            ("extend_directory", {"path": "work", "duration": "1h"}),
            ("narrow_directory", {"path": "work", "access": "read-only"}),
        ]:
            refused = await session.call(tool, **arguments)
            require(refused.is_error and refused.text, tool)
        for tool, arguments in [
            ("nothing", {}),
            ("request_directory", {}),
            ("request_directory", {"path": "relative"}),
            ("request_directory", {"path": work, "duration": "soon"}),
            ("request_directory", {"path": work, "more": 1}),
            ("explain_path", {"path": 1}),
        ]:
            await fails(session.call(tool, **arguments), f"{tool} {arguments}")
    wait_until(lambda: not mounts(base), "the mount is gone")


async def asking(base):
    other = f"{base}/other"
    for decision, access in [("read-only", "read-only"), ("read-write", "read-write"), ("no", None), ("decline", None), ("all", None)]:
        async with connected(base, "--ask", "client", decide=answer(decision)) as session:
            granted = await session.call("request_directory", path=other, access="read-write", reason="to build it")
            require(granted.is_error == (access is None), f"{decision}: {granted.text}")
            require(access is None or granted.values["access"] == access, granted.values)
    # The first generation of the SDK takes no message while it asks.
    if not Client:
        return
    asked = asyncio.Event()

    async def hesitate(context, parameters):
        asked.set()
        await asyncio.sleep(3600)

    async with connected(base, "--ask", "client", decide=hesitate) as session:
        call = asyncio.ensure_future(session.call("request_directory", path=other))
        await asked.wait()
        require((await session.call("list_directories")).values == {"directories": []}, "it answers while a question is open")
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        require((await session.call("list_directories")).values == {"directories": []}, "a cancelled question grants nothing")


async def killed_server(base):
    # The SDK's own end of a connection whose server is gone differs from version to version.
    with contextlib.suppress(BaseException):
        async with connected(base, "--ask", "never", "--policy", f"{base}/policy") as session:
            granted = await session.call("request_directory", path=f"{base}/work")
            held = os.open(f"{granted.values['path']}/file", os.O_RDONLY)
            for process in servers(base):
                os.kill(process, signal.SIGKILL)
            wait_until(lambda: not mounts(base), "the mount of a killed server is gone")
            try:
                os.pread(held, 1, 0)
                print("mcp: FAILED: a descriptor works after its server was killed", file=sys.stderr)
                os._exit(1)
            except OSError:
                pass
    require(not mounts(base), "the mount of a killed server is gone")


def killed_client(base):
    client = subprocess.Popen([sys.executable, __file__, PROGRAM, VERSION, base], stdout=subprocess.PIPE, text=True)
    place = client.stdout.readline().strip()
    require(os.path.exists(f"{place}/file"), place)
    client.kill()
    client.wait()
    wait_until(lambda: not mounts(base) and not servers(base), "nothing of a killed client is left")


async def hold(base):
    async with connected(base, "--ask", "never", "--policy", f"{base}/policy") as session:
        granted = await session.call("request_directory", path=f"{base}/work")
        print(granted.values["path"], flush=True)
        await asyncio.sleep(3600)


def main():
    if len(sys.argv) == 4:
        return asyncio.run(hold(sys.argv[3]))
    base = os.path.realpath(tempfile.mkdtemp(prefix="grantfs-mcp."))
    try:
        for name in ["work", "other"]:
            os.mkdir(f"{base}/{name}")
        pathlib.Path(f"{base}/work/file").write_text("text")
        pathlib.Path(f"{base}/work/secret").write_text("text")
        pathlib.Path(f"{base}/policy").write_text(f'[[allow]]\npath = "{base}/work"\naccess = "read-write"\n')
        os.chmod(f"{base}/policy", 0o600)
        asyncio.run(every_tool(base))
        if CAN_ASK:
            asyncio.run(asking(base))
        asyncio.run(killed_server(base))
        killed_client(base)
    finally:
        for process in servers(base):
            os.kill(process, signal.SIGKILL)
        wait_until(lambda: not mounts(base), "no mount is left")
        shutil.rmtree(base)


main()
