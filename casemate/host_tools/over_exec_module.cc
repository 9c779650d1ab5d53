#include <fmt/format.h>

#include <boost/json.hpp>
#include <string>

#include "casemate/base/json.h"
#include "casemate/core/errors.h"
#include "casemate/host_tools/over_exec_guest.h"

// Cut out of casemate/guest/support/casemate_tools.py by the build.
extern "C" const char casemate_embedded_by_attribute_0[];
extern "C" const char casemate_embedded_by_attribute_0_end[];

namespace casemate {
namespace {

std::string_view by_attribute() {
  return {casemate_embedded_by_attribute_0, casemate_embedded_by_attribute_0_end};
}

// What follows the three generated lines (_NAMES, _LIMIT, _TIMEOUT), before what the channel's
// module has too. The files it reads and writes: over_exec_request.h.
constexpr std::string_view kCalling = R"py(
import os
import sys
import time

__all__ = ["HostToolError", "call"]

_HERE = os.path.dirname(os.path.abspath(__file__))
_CALLS = os.path.join(_HERE, "host_tool_calls")
_POLL = 0.05

# A file that the run shares must not stand in for one of the library's.
_RUN = os.path.dirname(_HERE)
_paths = sys.path[:]
sys.path[:] = [path for path in _paths
               if path and path != _RUN and not path.startswith(_RUN.rstrip("/") + "/")]
try:
    import json
finally:
    sys.path[:] = _paths

# All below are taken; several threads may set it back a little, which does no harm.
_next = 1


class HostToolError(RuntimeError):
    """The host refused a call, or did not answer. The text is the host's sentence."""


def _claim():
    global _next
    os.makedirs(_CALLS, exist_ok=True)
    number = _next
    while _LIMIT is None or number <= _LIMIT:
        try:
            os.close(os.open(os.path.join(_CALLS, "%04d.claim" % number),
                             os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            number += 1
            continue
        _next = number + 1
        return number
    raise HostToolError("Error: the %d host tool calls of this run are used up; finish with what "
                        "there is." % (_LIMIT - 1))


def _publish(number, text):
    path = os.path.join(_CALLS, "%04d.request.json" % number)
    with open(path + ".part", "wb") as file:
        file.write(text)
    os.replace(path + ".part", path)


def _answer(path):
    """None for one that is not there, or not all of it."""
    try:
        with open(path, "rb") as file:
            answer = json.loads(file.read().decode())
    except (FileNotFoundError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


def call(name, /, **arguments):
    """Calls the host's function `name` and returns its value."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a host tool is a str, not {type(name).__name__}")
    # Before a number is taken: what is no JSON fails here and reaches nobody.
    text = json.dumps({"name": name, "arguments": arguments}, allow_nan=False,
                      ensure_ascii=False).encode()
    number = _claim()
    try:
        _publish(number, b'{"id": "%04d", ' % number + text[1:])
    except BaseException:
        _publish(number, b'{"id": "%04d", "abandoned": true}' % number)
        raise
    path = os.path.join(_CALLS, "%04d.response.json" % number)
    give_up = time.monotonic() + _TIMEOUT
    while True:
        late = time.monotonic() >= give_up
        answer = _answer(path)
        if answer is not None:
            if "value" in answer:
                return answer["value"]
            raise HostToolError(answer.get("refusal"))
        if late:
            raise HostToolError("Error: the host did not answer within %g seconds." % _TIMEOUT)
        time.sleep(_POLL)

)py";

std::string names_as_literal(const std::vector<std::string>& names) {
  boost::json::array list;
  for (const std::string& name : names) list.emplace_back(name);
  // A JSON array of strings is a list of Python's, escapes included.
  return serialise_json(list);
}

}  // namespace

std::string over_exec_module(const OverExecModule& module) {
  if (module.call_timeout <= std::chrono::nanoseconds(0)) {
    throw InvalidArgument(
        fmt::format("call_timeout is {} ns; a call waits for longer than 0",
                    module.call_timeout.count()),
        "leave it at 300 seconds, or state the time that the slowest host tool needs");
  }
  // The host answers one call more than it serves, by the refusal that says so.
  const std::string limit =
      module.max_calls ? fmt::format("{} + 1", *module.max_calls) : std::string("None");
  std::string text = fmt::format(
      "\"\"\"Functions of the host that this program may call.\"\"\"\n"
      "_NAMES = {}\n_LIMIT = {}\n_TIMEOUT = {}\n{}\n\n{}",
      names_as_literal(module.names), limit,
      std::chrono::duration<double>(module.call_timeout).count(), kCalling, by_attribute());
  if (text.size() > kHostToolModuleBytes) {
    throw InvalidArgument(fmt::format("the module for {} host tools has {} bytes; it may have {}",
                                      module.names.size(), text.size(), kHostToolModuleBytes),
                          "register fewer host tools, or give them shorter names");
  }
  return text;
}

}  // namespace casemate
