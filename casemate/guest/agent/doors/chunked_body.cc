#include "casemate/guest/agent/doors/chunked_body.h"

#include <algorithm>

namespace casemate::guest {
namespace {

// 2^60 bytes: no sum with it leaves its type.
constexpr int kMaxDigits = 15;

int hex_value(char each) {
  if (each >= '0' && each <= '9') return each - '0';
  if (each >= 'a' && each <= 'f') return each - 'a' + 10;
  if (each >= 'A' && each <= 'F') return each - 'A' + 10;
  return -1;
}

}  // namespace

std::size_t ChunkedBody::follow(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size() && !over() && !broken()) {
    if (state_ == State::data) {
      const std::uint64_t taken = std::min<std::uint64_t>(left_, bytes.size() - at);
      left_ -= taken;
      at += static_cast<std::size_t>(taken);
      if (left_ == 0) state_ = State::data_return;
      continue;
    }
    state_ = step(bytes[at]);
    if (!broken()) ++at;
  }
  return at;
}

ChunkedBody::State ChunkedBody::step(char each) {
  switch (state_) {
    case State::size: {
      if (each == '\r') return digits_ > 0 ? State::size_feed : State::broken;
      const int value = hex_value(each);
      if (value < 0 || ++digits_ > kMaxDigits) return State::broken;
      left_ = left_ * 16 + static_cast<std::uint64_t>(value);
      return State::size;
    }
    case State::size_feed:
      if (each != '\n') return State::broken;
      digits_ = 0;
      return left_ == 0 ? State::last_return : State::data;
    case State::data_return:
      return each == '\r' ? State::data_feed : State::broken;
    case State::data_feed:
      return each == '\n' ? State::size : State::broken;
    case State::last_return:
      return each == '\r' ? State::last_feed : State::broken;
    case State::last_feed:
      return each == '\n' ? State::over : State::broken;
    case State::data:
    case State::over:
    case State::broken:
      break;
  }
  return state_;
}

}  // namespace casemate::guest
