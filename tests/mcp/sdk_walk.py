"""What the Python client is made to do; the counterpart of walk.mjs, for both of its generations.

sdk_walk.py --era handshake|stateless --marker N (--url URL [--token T] | --command JSON)
Prints one JSON object of what it saw.
"""

import argparse
import base64
import contextlib
import hashlib
import json

import anyio

PROGRAM = """
import hashlib
data = bytes(range(256)) * 300
open("report.bin", "wb").write(data)
print("step one", flush=True)
print("digest", hashlib.sha256(data).hexdigest())
"""


async def walk(client, marker):
    seen = {"tools": [tool.name for tool in (await client.list_tools()).tools], "progress": 0}

    async def count(progress, total, message):
        seen["progress"] += 1

    ran = await client.call_tool("execute_code", {"code": PROGRAM, "outputs": ["report.bin"]},
                                 progress_callback=count)
    seen["text"] = ran.content[0].text
    seen["isError"] = error_of(ran)
    link = next(part for part in ran.content if part.type == "resource_link")
    read = await client.read_resource(link.uri)
    seen["digest"] = hashlib.sha256(base64.b64decode(read.contents[0].blob)).hexdigest()

    seen["cancelled"] = await cancel(client, f'import subprocess\nsubprocess.run(["sleep", "{marker}"])')

    refused = await client.call_tool("execute_code", {"code": "print(1)", "scope": "mine"})
    seen["refused"] = error_of(refused)
    seen["refusal"] = refused.content[0].text
    return seen


async def cancel(client, program):
    async with anyio.create_task_group() as group:
        async def stop_when_it_runs(progress, total, message):
            if "running" in (message or ""):
                group.cancel_scope.cancel()

        await client.call_tool("execute_code", {"code": program}, progress_callback=stop_when_it_runs)
        return "it returned"
    return "rejected"


def error_of(result):
    return bool(getattr(result, "is_error", None) if hasattr(result, "is_error") else result.isError)


@contextlib.asynccontextmanager
async def handshake_client(arguments):
    """mcp 1: a session over streams."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamablehttp_client

    if arguments.url:
        headers = {"Authorization": f"Bearer {arguments.token}"} if arguments.token else None
        streams = streamablehttp_client(arguments.url, headers=headers)
    else:
        command, *rest = json.loads(arguments.command)
        streams = stdio_client(StdioServerParameters(command=command, args=rest))
    async with streams as (read, write, *_):
        async with ClientSession(read, write) as session:
            started = await session.initialize()
            yield session, started.protocolVersion


@contextlib.asynccontextmanager
async def stateless_client(arguments):
    """mcp 2: one client for every transport."""
    import httpx2
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters
    from mcp.client.streamable_http import streamable_http_client

    if arguments.url:
        headers = {"Authorization": f"Bearer {arguments.token}"} if arguments.token else None
        server = streamable_http_client(arguments.url, http_client=httpx2.AsyncClient(headers=headers, timeout=60))
    else:
        command, *rest = json.loads(arguments.command)
        server = StdioServerParameters(command=command, args=rest)
    async with Client(server, mode="2026-07-28") as client:
        yield client, client.protocol_version


async def main():
    parser = argparse.ArgumentParser()
    for name in ("--era", "--marker", "--url", "--token", "--command"):
        parser.add_argument(name)
    arguments = parser.parse_args()
    make = handshake_client if arguments.era == "handshake" else stateless_client
    async with make(arguments) as (client, version):
        seen = await walk(client, arguments.marker)
        seen["version"] = version
    print(json.dumps(seen))


anyio.run(main)
