#pragma once

#include <string>
#include <string_view>

namespace casemate::mcp {

// What a landed name's extension says, by a fixed table; empty where the table has nothing. Never
// asks the bytes, nor the program: a client that believes a type would believe whoever wrote it.
std::string_view media_type_of(std::string_view name);

// Whether content of that type is text, which may be sent as such when it is valid UTF-8.
bool is_text_type(std::string_view media_type);

}  // namespace casemate::mcp
