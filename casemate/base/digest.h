#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace casemate {

// SHA-256 of `bytes` as 64 lower-case hex digits.
std::string sha256_hex(std::string_view bytes);

// The same for bytes that come in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::string_view bytes);
  // Of all bytes so far; call it once, last.
  std::string finish_hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// `count` random bytes from the kernel as 2*count hex digits. Throws std::system_error.
std::string random_hex(std::size_t count);

}  // namespace casemate
