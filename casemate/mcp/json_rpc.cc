#include "casemate/mcp/json_rpc.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <limits>
#include <utility>

#include "casemate/base/json.h"

namespace casemate::mcp {
namespace {

namespace json = boost::json;

using Part = std::variant<Message, MessageFault>;

MessageFault invalid(std::string_view why, std::optional<RequestId> id = std::nullopt) {
  return {ErrorCode::invalid_request, fmt::format("Invalid request: {}", why), std::move(id)};
}

// Of memory behind a value, as Boost.JSON lays it out: a value has 16 bytes, an entry of an object
// 32 and its place in the table, a string over 14 letters stands apart with a head of its own.
constexpr std::size_t kHead = 16;
constexpr std::size_t kShortString = 14;

std::size_t memory_behind(const json::value& value);

std::size_t memory_behind(const json::object& object) {
  std::size_t bytes =
      kHead + object.capacity() * (sizeof(json::key_value_pair) + sizeof(std::uint32_t));
  for (const auto& entry : object) bytes += entry.key().size() + 1 + memory_behind(entry.value());
  return bytes;
}

std::size_t memory_behind(const json::value& value) {
  if (const json::string* text = value.if_string()) {
    return text->capacity() > kShortString ? text->capacity() + kHead : 0;
  }
  if (const json::object* object = value.if_object()) return memory_behind(*object);
  const json::array* array = value.if_array();
  if (array == nullptr) return 0;
  std::size_t bytes = kHead + array->capacity() * sizeof(json::value);
  for (const json::value& each : *array) bytes += memory_behind(each);
  return bytes;
}

Part read_response(json::object&& object, std::optional<RequestId> id) {
  if (!id) return invalid("a response without a valid id");
  Message message;
  message.kind = Message::Kind::response;
  message.id = std::move(id);
  json::object result;
  if (json::value* value = object.if_contains("result"); value != nullptr && value->is_object()) {
    result = std::move(value->get_object());
  }
  message.is_error = object.contains("error");
  message.params = std::make_shared<const json::object>(std::move(result));
  return message;
}

Part read_one(json::value&& value) {
  json::object* object = value.if_object();
  if (object == nullptr) return invalid("a message is a JSON object");
  const json::value* id_value = object->if_contains("id");
  std::optional<RequestId> id;
  if (id_value != nullptr) id = RequestId::from(*id_value);
  const json::value* version = object->if_contains("jsonrpc");
  if (version == nullptr || !version->is_string() || version->get_string() != "2.0") {
    return invalid("'jsonrpc' must be \"2.0\"", std::move(id));
  }
  const json::value* method = object->if_contains("method");
  if (method == nullptr) {
    if (object->contains("result") || object->contains("error")) {
      return read_response(std::move(*object), std::move(id));
    }
    return invalid("there is no 'method'", std::move(id));
  }
  if (!method->is_string()) return invalid("'method' must be a string", std::move(id));
  if (method->get_string().size() > kMaxIdBytes) {
    return invalid("'method' is too long", std::move(id));
  }
  if (id_value != nullptr && !id) {
    return invalid(
        fmt::format("'id' must be an integer or a string of at most {} bytes", kMaxIdBytes));
  }
  Message message;
  message.kind = id ? Message::Kind::request : Message::Kind::notification;
  message.id = std::move(id);
  message.method = method->get_string();
  json::object params;
  if (json::value* given = object->if_contains("params"); given != nullptr) {
    if (given->is_object()) {
      params = std::move(given->get_object());
    } else {
      message.params_fault = true;
    }
  }
  message.bytes = sizeof message + message.method.size() + memory_behind(params);
  message.params = std::make_shared<const json::object>(std::move(params));
  return message;
}

Received only(MessageFault fault) {
  Received received;
  received.parts.emplace_back(std::move(fault));
  return received;
}

}  // namespace

std::optional<RequestId> RequestId::from(const json::value& value) {
  if (value.is_string()) {
    if (value.get_string().size() > kMaxIdBytes) return std::nullopt;
    return RequestId(serialise_json(value));
  }
  if (value.is_int64() || value.is_uint64()) return RequestId(serialise_json(value));
  return std::nullopt;
}

bool Received::wants_answer() const {
  for (const auto& part : parts) {
    const auto* message = std::get_if<Message>(&part);
    if (message == nullptr || message->kind == Message::Kind::request) return true;
  }
  return false;
}

std::string_view Received::method() const {
  if (batch || parts.size() != 1) return {};
  const auto* message = std::get_if<Message>(&parts.front());
  return message == nullptr ? std::string_view{} : std::string_view(message->method);
}

Received read_message(std::string_view text, const MessageBounds& bounds) {
  if (text.size() > bounds.max_bytes) return oversized_message(bounds);
  json::value value;
  try {
    value = parse_json(text, {.max_bytes = bounds.max_bytes});
  } catch (const JsonError& error) {
    return only({ErrorCode::parse_error, fmt::format("Parse error: {}", error.what()), {}});
  }
  if (memory_behind(value) > bounds.max_memory_bytes) {
    return only(invalid(
        fmt::format("a message takes at most {} bytes of memory", bounds.max_memory_bytes)));
  }
  Received received;
  json::array* batch = value.if_array();
  if (batch == nullptr) {
    received.parts.push_back(read_one(std::move(value)));
  } else {
    if (batch->empty()) return only(invalid("a batch is not empty"));
    if (batch->size() > bounds.max_batch) {
      return only(invalid(fmt::format("a batch has at most {} messages", bounds.max_batch)));
    }
    received.batch = true;
    for (json::value& one : *batch) received.parts.push_back(read_one(std::move(one)));
  }
  return received;
}

Received oversized_message(const MessageBounds& bounds) {
  return only(invalid(fmt::format("a message has at most {} bytes", bounds.max_bytes)));
}

std::string result_text(const RequestId& id, std::string_view result) {
  return fmt::format(R"({{"jsonrpc":"2.0","id":{},"result":{}}})", id.json(), result);
}

std::string error_text(const std::optional<RequestId>& id, ErrorCode code, std::string_view message,
                       std::string_view data, bool error_without_id) {
  std::string text = R"({"jsonrpc":"2.0")";
  if (id) {
    text += fmt::format(R"(,"id":{})", id->json());
  } else if (!error_without_id) {
    text += R"(,"id":null)";
  }
  text += fmt::format(R"(,"error":{{"code":{},"message":{})", static_cast<int>(code),
                      serialise_json(json::value(message)));
  if (!data.empty()) text += fmt::format(R"(,"data":{})", data);
  return text + "}}";
}

std::string notification_text(std::string_view method, const json::object& params) {
  return fmt::format(R"({{"jsonrpc":"2.0","method":"{}","params":{}}})", method,
                     serialise_json(params));
}

}  // namespace casemate::mcp
