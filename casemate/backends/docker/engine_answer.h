#pragma once

// Reading what an engine says. What is missing, or of another type, is empty.

#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "casemate/backends/docker/engine_client.h"
#include "casemate/base/json.h"

namespace casemate::docker {

inline constexpr JsonBounds kAnswerBounds{
    .max_bytes = 64 * 1024 * 1024, .max_depth = 64, .max_values = 4 * 1024 * 1024};
// Of what an engine says in no form that is known here.
inline constexpr std::size_t kMostWords = 1000;

// Throws `SandboxUnavailable`.
[[noreturn]] void no_sense(std::string_view what);

// Throw as `no_sense`.
boost::json::object parse(const std::string& body);
boost::json::array parse_array(const std::string& body);

std::string text(const boost::json::object& object, std::string_view name);
bool flag(const boost::json::object& object, std::string_view name);
std::uint64_t number(const boost::json::object& object, std::string_view name);
const boost::json::object& inner(const boost::json::object& object, std::string_view name);
// Those of its members that are texts.
std::map<std::string, std::string> texts(const boost::json::object& object);

// The engine's own words.
std::string words_of(const EngineReply& reply);
// Throws `EngineRefused` with them for an answer of another status.
void expect(const EngineReply& reply, std::initializer_list<unsigned> statuses);

// The part of a target that asks for those of which `name` is one of these.
std::string filters(std::string_view name, const std::vector<std::string>& values);

}  // namespace casemate::docker
