#pragma once

// Asking the client in the middle of a call: its user (elicitation), its model (sampling), its
// roots.

#include <boost/json/fwd.hpp>
#include <optional>
#include <string_view>

namespace casemate::mcp {

// Asks the client whose call the calling thread runs for a `Server`: from within a served tool, or
// a method of the host's (`ServerOptions::methods`). `key` names the question within its call.
// `method` is "elicitation/create", "sampling/createMessage" or "roots/list"; `params` are what the
// protocol says. Blocks while the client answers, at most `ServerOptions::ask_patience`.
//
// Returns the client's result, which is what a stranger sent. Absent when there is none: the thread
// runs no such call, the client said that it cannot be asked this, it answered with an error or not
// in time, or has gone. In the stateless revision also when the client has yet to be asked: what
// the call returns is then dropped, and it is made once more from its beginning, with the answer.
// So ask before anything is done, and return soon where there is nothing.
//
// A client speaks for its user; nothing here shows that it asked him.
std::optional<boost::json::object> ask_client(std::string_view key, std::string_view method,
                                              const boost::json::object& params);

}  // namespace casemate::mcp
