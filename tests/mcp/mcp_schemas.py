"""Holds messages of an MCP server against the published schema of their revision (schemas/)."""

import json
from pathlib import Path

import jsonschema

FOLDER = Path(__file__).resolve().parent / "schemas"
STATELESS = "2026-07-28"
HANDSHAKE = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
RESULTS = {"initialize": "InitializeResult", "tools/list": "ListToolsResult", "tools/call": "CallToolResult",
           "resources/list": "ListResourcesResult", "resources/read": "ReadResourceResult",
           "resources/templates/list": "ListResourceTemplatesResult", "server/discover": "DiscoverResult",
           "prompts/list": "ListPromptsResult", "prompts/get": "GetPromptResult", "completion/complete": "CompleteResult"}
MESSAGES = {"notifications/progress": "ProgressNotification", "notifications/message": "LoggingMessageNotification",
            "elicitation/create": "ElicitRequest"}
VALIDATORS = {}


def validator(revision, name):
    if (revision, name) not in VALIDATORS:
        schema = json.loads((FOLDER / f"{revision}.json").read_text())
        key = "$defs" if "$defs" in schema else "definitions"
        if name not in schema[key]:
            raise AssertionError(f"{revision} has no {name}")
        kind = jsonschema.validators.validator_for(schema)
        VALIDATORS[revision, name] = kind({"$ref": f"#/{key}/{name}", key: schema[key]})
    return VALIDATORS[revision, name]


def check(revision, name, value):
    errors = [f"{list(error.absolute_path)}: {error.message[:300]}" for error in validator(revision, name).iter_errors(value)]
    if errors:
        raise AssertionError(f"not a {name} of {revision}: {errors}\n{json.dumps(value)[:1500]}")


def check_message(revision, method, message):
    """`method`: of the request that it answers; None for what answers none."""
    if message["jsonrpc"] != "2.0":
        raise AssertionError(message)
    if "id" in message and message["id"] is None:
        return  # JSON-RPC's own form for what had no id that could be read; the schemas do not have it
    if "error" in message:
        check(revision, "JSONRPCError" if revision in HANDSHAKE[:3] else "JSONRPCErrorResponse", message)
    elif "result" in message:
        waits = message["result"].get("resultType") == "input_required"
        check(revision, "InputRequiredResult" if waits else RESULTS.get(method, "EmptyResult"), message["result"])
    else:
        check(revision, MESSAGES[message["method"]], message)
        check(revision, "JSONRPCRequest" if "id" in message else "JSONRPCNotification", message)
