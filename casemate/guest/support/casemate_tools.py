"""Functions of the host that a program in a sandbox may call.

    import casemate_tools
    casemate_tools.call("lookup", key="a")   # or casemate_tools.lookup(key="a")

`call` takes the function's name and its arguments by keyword, and returns the JSON value that the
host answers with. Where the host refuses, it raises HostToolError with the host's sentence. Arguments
that are no JSON (a cycle, NaN, an open file) raise ValueError or TypeError here and reach nobody. Any
thread and any child process may call; calls of several threads run at the same time.

Start-up loads this before any file of the program's can be imported, and it needs nothing beyond
what is in the interpreter: a shared json.py or socket.py does it no harm.
"""
import _socket
import os
import time
from _struct import Struct

__all__ = ["HostToolError", "call"]

# Mirrors casemate/host_tools/channel_frame.h.
_HEADER_BYTES = 9
_unpack_header = Struct("<IIB").unpack_from
# Its highest bit: nothing more comes on the connection before the answer.
_ID = 0x80000001
_NO_REQUEST = 0
_VALUE, _REFUSAL, _TRY_AGAIN = 0, 1, 2
_MAX_NAME = 0xFFFF
# The host reads no larger request over.
_MAX_LENGTH = 64 * 1024 * 1024
# Answers are bounded far below by the host; one that says more is none.
_MAX_ANSWER = 1 << 30
# Most answers come with one read of so much.
_READ = 4096

_ADDRESS = os.environ.get("CASEMATE_HOST_TOOLS", "/casemate/call/host-tools.sock")
_NAMES = os.environ.get("CASEMATE_HOST_TOOL_NAMES", "").split()

# Connections that are kept while nobody uses them. The host takes 64 of a run, for all its processes,
# and ends those that have had no call for longest when there are more callers.
_MAX_IDLE = 8
# How long a call waits for the host to take one more.
_CONNECT_PATIENCE = 30.0


class HostToolError(RuntimeError):
    """The host refused a call, or cannot be reached. The text is the host's sentence."""


def _not_json(value):
    raise TypeError(f"an argument of type {type(value).__name__} is no JSON")


def _no_constant(name):
    raise ValueError(f"{name} is no JSON")


def _make_codec():
    """Two functions: to JSON text, from JSON text. The package json would cost more than a call."""
    try:
        from _json import encode_basestring, make_encoder, make_scanner

        class Context:
            strict = True
            object_hook = None
            object_pairs_hook = None
            parse_float = float
            parse_int = int
            parse_constant = staticmethod(_no_constant)

        scan = make_scanner(Context())

        # One for all: without the table by which it would tell a cycle from a value that is nested
        # too deeply, it keeps nothing between calls and threads.
        encoder = make_encoder(None, _not_json, encode_basestring, None, ":", ",", False, False,
                               False)

        def encode(value):
            try:
                return "".join(encoder(value, 0))
            except RecursionError:
                raise ValueError("an argument is nested too deeply, or in itself") from None

        def decode(text):
            try:
                value, end = scan(text, 0)
            except (StopIteration, SystemError):
                # The latter: it looks for json.decoder's class of error, which is not loaded.
                end = -1
            if end != len(text):
                raise ValueError("no JSON")
            return value

        if decode(encode({"a": [1, 2.5, None]})) != {"a": [1, 2.5, None]}:
            raise ImportError("another _json")
        return encode, decode
    except (ImportError, TypeError, AttributeError):
        import json

        def encode(value):
            return json.dumps(value, default=_not_json, ensure_ascii=False, allow_nan=False,
                              separators=(",", ":"))

        return encode, json.loads


_encode, _decode = _make_codec()

# Connections that nobody uses. Taking from and adding to a list is one step for every thread, and a
# child of a fork begins with none of its parent's.
_idle = []
os.register_at_fork(after_in_child=_idle.clear)


def _give_back(connection):
    if len(_idle) < _MAX_IDLE:
        _idle.append(connection)
    else:
        connection.close()


def _connect():
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        connection.connect(_ADDRESS)
    except FileNotFoundError:
        connection.close()
        raise HostToolError("Error: this run has no host tools.") from None
    except OSError as error:
        connection.close()
        raise HostToolError(f"Error: the host cannot be reached: {error}.") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _receive_rest(connection, data, count):
    """`data` and what follows it, `count` bytes; empty when the host closed before."""
    parts = [data]
    missing = count - len(data)
    while missing > 0:
        data = connection.recv(min(missing, 1 << 20))
        if not data:
            return b""
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def _exchange(connection, request):
    """The answer's bytes and what has come behind it; empty when the host closed without one, None
    when it did so before it had the whole request."""
    lost = b""
    try:
        connection.sendall(request)
    except (BrokenPipeError, ConnectionResetError):
        lost = None  # why may be there to be read
    try:
        data = connection.recv(_READ)
        if len(data) < _HEADER_BYTES:
            data = _receive_rest(connection, data, _HEADER_BYTES) if data else b""
        if data:
            size = 4 + int.from_bytes(data[:4], "little")
            if len(data) < size <= _MAX_ANSWER:
                data = _receive_rest(connection, data, size)
        return data or lost
    except ConnectionResetError:
        return lost


def _take_apart(answer):
    """(the request's id, the answer's kind, the value or the sentence, its size)."""
    length, number, kind = _unpack_header(answer)
    size = length + 4
    if len(answer) >= size:
        text = answer[_HEADER_BYTES:size].decode()
        if kind == _VALUE and number == _ID:
            return number, kind, _decode(text), size
        if kind == _REFUSAL and (number == _ID or number == _NO_REQUEST):
            return number, kind, text, size
        if kind == _TRY_AGAIN and number == _NO_REQUEST:
            return number, kind, text, size
    raise ValueError("no answer")


# What a request for a name has between its length and its arguments.
_heads = {}


def _head_of(name):
    if not isinstance(name, str):
        raise TypeError(f"the name of a host tool is a str, not {type(name).__name__}")
    word = name.encode()
    if len(word) > _MAX_NAME:
        raise ValueError("the name of a host tool is too long")
    if len(_heads) >= 256:
        _heads.clear()
    head = _heads[name] = _ID.to_bytes(4, "little") + len(word).to_bytes(2, "little") + word
    return head


def call(name, /, **arguments):
    """Calls the host's function `name` and returns its value."""
    try:
        head = _heads[name]
    except (KeyError, TypeError):
        head = _head_of(name)
    text = _encode(arguments).encode()
    length = len(head) + len(text)
    if length > _MAX_LENGTH:
        raise HostToolError(f"Error: the arguments are too large: the request has {length} bytes; "
                            f"one may have {_MAX_LENGTH}.")
    request = b"".join((length.to_bytes(4, "little"), head, text))
    give_up = None
    while True:
        try:
            connection = _idle.pop()
            kept = True
        except IndexError:
            connection = _connect()
            kept = False
        try:
            answer = _exchange(connection, request)
        except BaseException:
            # Whatever came in between: an answer that comes yet must not meet the next call.
            connection.close()
            raise
        if not answer:
            connection.close()
            if kept and answer is None:
                continue
            raise HostToolError("Error: the connection to the host was lost; whether the call was "
                                "made is not known.")
        try:
            number, kind, value, size = _take_apart(answer)
        except (ValueError, RecursionError):
            connection.close()
            raise HostToolError("Error: the host's answer makes no sense.") from None
        if number == _ID:
            if len(answer) == size:
                _give_back(connection)
            else:
                connection.close()  # the host has said that it ends it
            break
        connection.close()
        if kind != _TRY_AGAIN:
            break
        if kept:
            continue  # it was ended meanwhile, and the request not read
        now = time.monotonic()
        give_up = give_up or now + _CONNECT_PATIENCE
        if now > give_up:
            break
        time.sleep(0.005)
    if kind == _VALUE:
        return value
    raise HostToolError(value)


# -- By attribute: from here on also the file transport's module (over_exec_module.cc) --------------

# Of Python's grammar; the module `keyword` might be the program's.
_KEYWORDS = frozenset(
    "False None True and as assert async await break class continue def del elif else except "
    "finally for from global if import in is lambda nonlocal not or pass raise return try while "
    "with yield".split())

_functions = None


def _by_attribute():
    """The host's functions whose names can be written after a dot, as Python reads them."""
    global _functions
    if _functions is None:
        table = {}
        for name in sorted(_NAMES):
            attribute = name
            if not name.isascii():
                import unicodedata
                attribute = unicodedata.normalize("NFKC", name)
            if (attribute.isidentifier() and attribute not in _KEYWORDS
                    and not attribute.startswith("__")):
                table.setdefault(attribute, name)
        _functions = table
    return _functions


def __getattr__(attribute):
    name = _by_attribute().get(attribute)
    if name is None:
        raise AttributeError(f"module 'casemate_tools' has no attribute {attribute!r}")

    def function(**arguments):
        return call(name, **arguments)

    function.__name__ = function.__qualname__ = attribute
    function.__doc__ = f"Calls the host's function {name!r}."
    return function


def __dir__():
    return sorted({*__all__, *_by_attribute()})
