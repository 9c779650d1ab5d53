#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "casemate/base/log.h"

namespace casemate::docker {

// What an engine sends of an exec without a terminal: pieces {u8 stream, 3 zero bytes, u32 length,
// big-endian} and so many bytes, of stream 1 (output) or 2 (error). Checked, like all of an
// engine's.
class AttachedOutput {
 public:
  // Gets what came on the error stream, escaped and no more than a page of it.
  explicit AttachedOutput(Log log);

  // Appends what `bytes` hold of the output. False when they break the format.
  bool receive(std::string_view bytes, std::string& output);
  // To the log.
  void tell(std::string_view what);

 private:
  Log log_;
  std::string header_;
  std::uint32_t left_ = 0;
  bool is_error_ = false;
  std::size_t told_ = 0;
};

}  // namespace casemate::docker
