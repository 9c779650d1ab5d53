#pragma once

// What programs make the host hold for one run, counted against one bound.

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace casemate {

// May be used from several threads.
class HeldBytes {
 public:
  explicit HeldBytes(std::uint64_t max) : max_(max) {}

  std::uint64_t max() const { return max_; }
  std::uint64_t left() const {
    const std::uint64_t held = held_;
    return held < max_ ? max_ - held : 0;
  }

 private:
  friend class HeldShare;

  bool take(std::uint64_t bytes) noexcept {
    std::uint64_t held = held_;
    do {
      if (bytes > max_ - held) return false;
    } while (!held_.compare_exchange_weak(held, held + bytes));
    return true;
  }
  void give_back(std::uint64_t bytes) noexcept { held_ -= bytes; }

  const std::uint64_t max_;
  // Never above `max_`.
  std::atomic<std::uint64_t> held_ = 0;
};

// One holder's part; given back with it.
class HeldShare {
 public:
  HeldShare() = default;
  explicit HeldShare(std::shared_ptr<HeldBytes> of) : of_(std::move(of)) {}
  ~HeldShare() { release(); }
  HeldShare(HeldShare&& other) noexcept
      : of_(std::move(other.of_)), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldShare& operator=(HeldShare&& other) noexcept {
    if (this != &other) {
      release();
      of_ = std::move(other.of_);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }

  // Whether it is of anything; one that is not takes nothing.
  explicit operator bool() const { return of_ != nullptr; }

  // Has `bytes` from now on. False when there is no room for so many; then nothing has changed.
  bool resize(std::uint64_t bytes) noexcept {
    if (of_ == nullptr) return bytes == 0;
    if (bytes > bytes_) {
      if (!of_->take(bytes - bytes_)) return false;
    } else if (bytes < bytes_) {
      of_->give_back(bytes_ - bytes);
    }
    bytes_ = bytes;
    return true;
  }

 private:
  void release() noexcept {
    if (of_ != nullptr) of_->give_back(std::exchange(bytes_, 0));
  }

  std::shared_ptr<HeldBytes> of_;
  std::uint64_t bytes_ = 0;
};

}  // namespace casemate
