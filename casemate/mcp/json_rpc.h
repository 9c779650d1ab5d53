#pragma once

// JSON-RPC 2.0 as MCP narrows it: text in, checked messages out, and the texts of answers.

#include <boost/json/fwd.hpp>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace casemate::mcp {

// The codes that are sent (JSON-RPC 2.0, section 5.1; the basics of revision 2026-07-28).
enum class ErrorCode : int {
  parse_error = -32700,
  invalid_request = -32600,
  method_not_found = -32601,
  invalid_params = -32602,
  internal_error = -32603,
  // Before 2026-07-28 only.
  resource_not_found = -32002,
  // The stateless revision only.
  header_mismatch = -32020,
  missing_client_capability = -32021,
  unsupported_version = -32022,
};

// Bounds on one message from a client. Equality passes.
struct MessageBounds {
  // Of the text, without the newline or the HTTP framing around it. That of a tool's arguments.
  std::size_t max_bytes = 8 * 1024 * 1024;
  // Of memory that it takes once it was read: a value of two letters takes sixteen bytes.
  std::size_t max_memory_bytes = 32 * 1024 * 1024;
  // Messages in one batch.
  std::size_t max_batch = 100;
};

// A longer id, progress token or method name is refused: they are sent back, some of them often.
inline constexpr std::size_t kMaxIdBytes = 1024;

// An id as the client wrote it: a string or an integer of 64 bits. Two are equal when type and
// value are.
class RequestId {
 public:
  // Absent for any other type, and for a string over `kMaxIdBytes`.
  static std::optional<RequestId> from(const boost::json::value& value);

  // JSON text, to be sent back.
  const std::string& json() const { return json_; }

  friend auto operator<=>(const RequestId&, const RequestId&) = default;

 private:
  explicit RequestId(std::string json) : json_(std::move(json)) {}
  std::string json_;
};

// One message that has the form of one.
struct Message {
  enum class Kind : std::uint8_t { request, notification, response };

  Kind kind = Kind::notification;
  // Of a request or a response.
  std::optional<RequestId> id{};
  // Of a request or a notification.
  std::string method{};
  // `params` of a request or a notification, `result` of a response; never null, empty when it was
  // absent or is of another type (`params_fault`).
  std::shared_ptr<const boost::json::object> params;
  // `params` was there and is no object.
  bool params_fault = false;
  // A response that is an error.
  bool is_error = false;
  // Of memory that it holds.
  std::size_t bytes = 0;
};

// A message, or a part of a batch, that is none.
struct MessageFault {
  ErrorCode code = ErrorCode::parse_error;
  // One sentence; repeats nothing of the message.
  std::string message;
  // Where it could be read.
  std::optional<RequestId> id{};
};

// What one line, or one body of HTTP, held.
struct Received {
  // One, or those of a batch in their order. A batch that is empty or has too many is one fault,
  // and no batch.
  std::vector<std::variant<Message, MessageFault>> parts;
  // They stood in an array. Whether that may be is the revision's to say.
  bool batch = false;

  // Whether an answer is due: some part is a request or a fault.
  bool wants_answer() const;
  // The method of a single request or notification; empty for anything else.
  std::string_view method() const;
};

// Reads a message strictly (base/json.h: bounds, no duplicate keys, no byte order mark, depth 64,
// integers of 64 bits). Never throws for what a client can send: a fault stands in its place.
Received read_message(std::string_view text, const MessageBounds& bounds = {});

// The fault of a message over `bounds.max_bytes`, for a transport that did not keep it.
Received oversized_message(const MessageBounds& bounds);

// Answers and notifications as text on one line, without the newline. `result` and `data` are JSON
// texts.
std::string result_text(const RequestId& id, std::string_view result);
// Without an id: `"id":null`, or no id at all where `error_without_id` is set.
std::string error_text(const std::optional<RequestId>& id, ErrorCode code, std::string_view message,
                       std::string_view data = {}, bool error_without_id = true);
std::string notification_text(std::string_view method, const boost::json::object& params);

}  // namespace casemate::mcp
