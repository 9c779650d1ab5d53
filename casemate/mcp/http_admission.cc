// Who gets the places of an HTTP server, where there are fewer than are asked for.

#include "casemate/mcp/http_connection.h"
#include "casemate/mcp/http_core.h"

namespace casemate::mcp {

bool HttpServer::Core::has_place_for(std::string_view caller) const {
  std::size_t held = 0;
  for (const HttpConnection* connection : connections) {
    if (connection->is_served() && connection->caller() == caller) ++held;
  }
  return held < part_of(options.max_connections, share());
}

bool HttpServer::Core::make_room_to_receive(const HttpConnection& receiver) {
  while (true) {
    std::size_t all = 0;
    std::size_t of_caller = 0;
    HttpConnection* oldest = nullptr;
    HttpConnection* oldest_of_caller = nullptr;
    const auto is_older = [](const HttpConnection* one, const HttpConnection* other) {
      return other == nullptr || *one->owing_since() < *other->owing_since();
    };
    for (HttpConnection* connection : connections) {
      const std::size_t received = connection->received_bytes();
      if (received == 0 && connection != &receiver) continue;
      all += received;
      const bool is_his = connection->caller() == receiver.caller();
      if (is_his) of_caller += received;
      if (connection == &receiver) continue;
      if (is_older(connection, oldest)) oldest = connection;
      if (is_his && is_older(connection, oldest_of_caller)) oldest_of_caller = connection;
    }
    HttpConnection* victim = nullptr;
    if (of_caller > part_of(options.max_receiving_bytes, share())) {
      victim = oldest_of_caller;
    } else if (all > options.max_receiving_bytes) {
      victim = oldest;
    } else {
      return true;
    }
    if (victim == nullptr) return false;
    victim->close();
  }
}

bool HttpServer::Core::make_room_to_connect() {
  HttpConnection* longest = nullptr;
  for (HttpConnection* connection : connections) {
    const auto since = connection->owing_since();
    if (since && (longest == nullptr || *since < *longest->owing_since())) longest = connection;
  }
  if (longest == nullptr) return false;
  longest->close();
  return true;
}

}  // namespace casemate::mcp
