// For builds with ThreadSanitizer alone. That of g++ 12 does not know pthread_mutex_clocklock, by
// which std::timed_mutex waits for a steady clock: it would not see the lock, and would report what
// the lock guards. It knows the call of the wall clock, so that is made of it here.

#include <pthread.h>
#include <time.h>

extern "C" int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                       const struct timespec* deadline) noexcept {
  constexpr long kSecond = 1'000'000'000;
  struct timespec now{};
  struct timespec wall{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  wall.tv_sec += deadline->tv_sec - now.tv_sec;
  wall.tv_nsec += deadline->tv_nsec - now.tv_nsec;
  if (wall.tv_nsec < 0) {
    wall.tv_nsec += kSecond;
    --wall.tv_sec;
  } else if (wall.tv_nsec >= kSecond) {
    wall.tv_nsec -= kSecond;
    ++wall.tv_sec;
  }
  return pthread_mutex_timedlock(mutex, &wall);
}
