#pragma once

// What a proxied server answers, on its way to the client: only that the connection ends with it
// has to be said. Pure.

#include <cstddef>
#include <string>
#include <string_view>

namespace casemate::guest {

// Bytes of one head that are waited for.
inline constexpr std::size_t kMaxResponseHead = 64 * 1024;

class ResponseHead {
 public:
  // Takes bytes from the server. What `take` then gives is for the client.
  void put(std::string_view bytes);

  // What may go to the client by now. Everything, once the final head has passed.
  std::string take();

  // The final head (one that is not "100 Continue" or the like) has passed: the rest of the
  // connection is body, which ends with it.
  bool passed() const { return passed_; }
  // What came is no answer of HTTP/1.x. Nothing more goes to the client.
  bool broken() const { return broken_; }
  // Whether anything went to the client yet.
  bool began() const { return began_; }

 private:
  void pass_heads();

  std::string held_;
  std::string ready_;
  bool passed_ = false;
  bool broken_ = false;
  bool began_ = false;
};

}  // namespace casemate::guest
