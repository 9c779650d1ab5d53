#include "bench/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

extern char** environ;

namespace casemate::bench {
namespace {

class NullStreams {
 public:
  NullStreams() {
    posix_spawn_file_actions_init(&actions_);
    for (const int stream : {0, 1, 2}) {
      posix_spawn_file_actions_addopen(&actions_, stream, "/dev/null", O_RDWR, 0);
    }
    // What this process has open must not make the others slower.
    posix_spawn_file_actions_addclosefrom_np(&actions_, 3);
  }
  ~NullStreams() { posix_spawn_file_actions_destroy(&actions_); }
  NullStreams(const NullStreams&) = delete;
  NullStreams& operator=(const NullStreams&) = delete;
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

}  // namespace

pid_t start_process(const std::vector<std::string>& argv) {
  static const NullStreams kStreams;
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, words[0], kStreams.get(), nullptr, words.data(), environ);
  if (error != 0) throw std::runtime_error(fmt::format("{}: {}", argv[0], std::strerror(error)));
  return pid;
}

void reap_process(pid_t pid, const std::string& name) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) throw std::runtime_error(fmt::format("waiting for {}", name));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw std::runtime_error(fmt::format("{} ended with status {}", name,
                                         WIFEXITED(status) ? WEXITSTATUS(status) : 128));
  }
}

double time_process(const std::vector<std::string>& argv) {
  const auto start = std::chrono::steady_clock::now();
  reap_process(start_process(argv), argv[0]);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  return took.count();
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t end = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, end)) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return {};
}

}  // namespace casemate::bench
