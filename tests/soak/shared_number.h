#pragma once

#include <sys/mman.h>

#include <atomic>
#include <new>

namespace casemate::soak {

// A number that the processes which are forked from this one share with it.
class SharedNumber {
 public:
  SharedNumber()
      : place_(mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (place_ == MAP_FAILED) throw std::bad_alloc();
    new (place_) std::atomic<int>(0);
  }
  ~SharedNumber() { munmap(place_, sizeof(std::atomic<int>)); }
  SharedNumber(const SharedNumber&) = delete;
  SharedNumber& operator=(const SharedNumber&) = delete;

  std::atomic<int>& operator*() const { return *static_cast<std::atomic<int>*>(place_); }

 private:
  void* place_;
};

}  // namespace casemate::soak
