#include "casemate/images/idle_times.h"

#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstddef>
#include <exception>
#include <map>
#include <optional>

#include "casemate/base/json.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/staged_file.h"

namespace casemate::images {
namespace {

namespace json = boost::json;
using std::chrono::seconds;

// What a clock is set right by in passing; nobody minds as much idle time.
constexpr seconds kTolerance = std::chrono::hours(1);
constexpr std::size_t kMaxRecordBytes = 4 << 20;
// Beyond what any clock says, and small enough to be reckoned with.
constexpr std::int64_t kMostSeconds = std::int64_t{1} << 40U;

struct Known {
  std::int64_t used = 0;
  seconds idle{};
};

struct Look {
  Clocks clocks;
  std::map<std::string, Known, std::less<>> things;
};

std::int64_t bounded(std::int64_t value) { return std::clamp(value, -kMostSeconds, kMostSeconds); }

seconds seconds_of(const json::value& value) {
  return seconds(bounded(value.to_number<std::int64_t>()));
}

seconds read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return seconds(now.tv_sec);
}

std::optional<Look> read_look(int directory) {
  const auto text = sys::read_file_if_there(directory, kIdleTimesName, kMaxRecordBytes);
  if (!text) return std::nullopt;
  try {
    const json::value value = parse_json(*text);
    const json::object& record = value.as_object();
    Look look{.clocks = {.boot = std::string(record.at("boot").as_string()),
                         .running = seconds_of(record.at("running")),
                         .wall = seconds_of(record.at("wall"))},
              .things = {}};
    for (const auto& [name, known] : record.at("things").as_object()) {
      const json::array& pair = known.as_array();
      look.things.emplace(std::string(name), Known{.used = pair.at(0).to_number<std::int64_t>(),
                                                   .idle = seconds_of(pair.at(1))});
    }
    return look;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// What passed since the last look, and whether the wall clock said so too.
struct Passed {
  seconds time{};
  bool wall_agrees = false;
};

Passed passed_since(const Clocks& last, const Clocks& now, seconds most_over_a_boot) {
  const seconds wall = now.wall - last.wall;
  if (now.boot.empty() || now.boot != last.boot) {
    return {.time = std::clamp(wall, seconds{0}, most_over_a_boot)};
  }
  const seconds time = std::max(seconds{0}, now.running - last.running);
  return {.time = time, .wall_agrees = std::chrono::abs(wall - time) <= kTolerance};
}

seconds idle_of(const UsedThing& thing, const std::optional<Look>& last, const Passed& passed,
                seconds wall) {
  if (!last) return {};
  const auto known = last->things.find(thing.name);
  if (known != last->things.end() && known->second.used == thing.used) {
    return known->second.idle + passed.time;
  }
  const seconds used(bounded(thing.used));
  if (!passed.wall_agrees || used > wall || used < last->clocks.wall - kTolerance) return {};
  return std::min(wall - used, passed.time);
}

}  // namespace

Clocks read_clocks() {
  Clocks clocks{
      .boot = "", .running = read_clock(CLOCK_BOOTTIME), .wall = read_clock(CLOCK_REALTIME)};
  try {
    clocks.boot = sys::read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64);
  } catch (const std::system_error&) {
    // Then each look is as over the start of a machine.
  }
  return clocks;
}

IdleTimes::IdleTimes(int directory, const std::vector<UsedThing>& things, seconds most_over_a_boot,
                     const Clocks& now)
    : directory_(directory) {
  const std::optional<Look> last = read_look(directory);
  const Passed passed = last ? passed_since(last->clocks, now, most_over_a_boot) : Passed{};
  json::object known;
  for (const UsedThing& thing : things) {
    const seconds idle = std::min(idle_of(thing, last, passed, now.wall), seconds(kMostSeconds));
    idle_.push_back(idle);
    known[thing.name] = json::array{thing.used, idle.count()};
  }
  record_ = serialise_json(json::object{{"boot", now.boot},
                                        {"running", now.running.count()},
                                        {"wall", now.wall.count()},
                                        {"things", std::move(known)}});
}

void IdleTimes::write() const { sys::replace_whole_file(directory_, kIdleTimesName, record_); }

}  // namespace casemate::images
