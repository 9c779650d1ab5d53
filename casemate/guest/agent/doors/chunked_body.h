#pragma once

// Follows a chunked body (RFC 9112, section 7.1) to its end, strictly: no extensions, no trailer
// fields, no line end but CR LF. Pure; holds no data.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace casemate::guest {

class ChunkedBody {
 public:
  // How many of the bytes belong to the body: fewer than came once it is over. Nothing counts any
  // more once it is broken.
  std::size_t follow(std::string_view bytes);

  bool over() const { return state_ == State::over; }
  bool broken() const { return state_ == State::broken; }

 private:
  enum class State : std::uint8_t {
    size,
    size_feed,
    data,
    data_return,
    data_feed,
    last_return,
    last_feed,
    over,
    broken
  };
  State step(char each);

  State state_ = State::size;
  std::uint64_t left_ = 0;
  int digits_ = 0;
};

}  // namespace casemate::guest
