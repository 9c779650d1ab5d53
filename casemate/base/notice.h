#pragma once

#include <functional>
#include <memory>
#include <set>
#include <source_location>
#include <string>
#include <string_view>

namespace casemate {

// One-time notices, in place of warnings. The hook is the host's; each code is delivered once a
// hook, and never when suppressed. A notice is never a failure: what the hook throws is contained.
// Codes: "experimental", "host_tools". Copies share what was already delivered. Thread-safe.
class Notices {
 public:
  using Hook = std::function<void(std::string_view code, std::string_view text,
                                  const std::source_location& where)>;

  // Without a hook every notice is dropped.
  Notices();
  explicit Notices(Hook hook, std::set<std::string> suppressed_codes = {});

  void notify(std::string_view code, std::string_view text,
              const std::source_location& where = std::source_location::current()) const noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace casemate
