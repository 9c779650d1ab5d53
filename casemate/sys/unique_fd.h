#pragma once

#include <unistd.h>

#include <utility>

namespace casemate::sys {

// Owns one file descriptor and closes it. Move-only; -1 is empty. Everything in this library that
// makes a descriptor makes it close-on-exec.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

  // Gives up ownership; the caller closes.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

  // Closes what is held and takes `fd`. A failed close is not repeated: Linux has freed the number
  // by then. errno is kept.
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

}  // namespace casemate::sys
