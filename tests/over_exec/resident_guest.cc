#include "tests/over_exec/resident_guest.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <stdexcept>
#include <utility>

namespace casemate {
namespace {

namespace json = boost::json;

constexpr const char* kServer = R"py(
import json, os, subprocess, sys
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"timed_out": False, "code": 0, "out": "", "err": ""}
    try:
        done = subprocess.run(asked["argv"], cwd=asked["cwd"], stdin=subprocess.DEVNULL,
                              env={**os.environ, **asked["env"]},
                              capture_output=True, timeout=asked["timeout"])
        answer.update(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())
    except subprocess.TimeoutExpired:
        answer["timed_out"] = True
    print(json.dumps(answer), flush=True)
)py";

json::array words_of(const ExecRequest& request) {
  if (const auto* line = std::get_if<ShellLine>(&request.command)) {
    return {"/bin/sh", "-c", line->line};
  }
  json::array words;
  for (const std::string& word : std::get<Argv>(request.command).words) words.emplace_back(word);
  return words;
}

}  // namespace

ResidentGuest::ResidentGuest(Sandbox& sandbox) : call_(sandbox.open_call({}, {})) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  commands_end_ = sys::UniqueFd(ends[0]);
  commands_ = sys::UniqueFd(ends[1]);
  ExecRequest request;
  // Isolated: files of the run must not reach the server.
  request.command = Argv{{"/usr/bin/python3", "-I", "-c", kServer}};
  request.stdin_mode = StdinMode::forwarded;
  request.stdin_descriptor = commands_end_.get();
  request.on_output = [this](OutputStream stream, std::span<const char> bytes) {
    if (stream != OutputStream::out) return;
    const std::lock_guard lock(mutex_);
    received_.append(bytes.begin(), bytes.end());
    changed_.notify_all();
  };
  server_ = std::jthread([this, process = call_->start(request, {})] {
    try {
      process->wait({.stop = stop_.get_token()});
    } catch (const std::exception&) {
      // Whoever waits for an answer is told.
    }
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  });
}

ResidentGuest::~ResidentGuest() {
  stop_.request_stop();
  server_.join();
}

ExecAndFiles ResidentGuest::access() {
  return {*call_, [this](const ExecRequest& request, const CallControl&) { return exec(request); }};
}

std::string ResidentGuest::answer_to(const std::string& line) {
  if (write(commands_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw std::runtime_error("the server takes no command");
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ended_ || received_.find('\n') != std::string::npos; });
  const std::size_t end = received_.find('\n');
  if (end == std::string::npos) throw std::runtime_error("the server has ended");
  std::string answer = received_.substr(0, end);
  received_.erase(0, end + 1);
  return answer;
}

ExecResult ResidentGuest::exec(const ExecRequest& request) {
  json::object variables;
  for (const auto& [name, value] : environment) variables[name] = value;
  for (const auto& [name, value] : request.environment) variables[name] = value;
  const json::object asked{
      {"argv", words_of(request)},
      {"cwd", request.directory.empty() ? call_->directory() + "/work" : request.directory},
      {"env", variables},
      {"timeout",
       std::chrono::duration<double>(request.timeout.value_or(std::chrono::seconds(60))).count()}};
  const json::object answer = json::parse(answer_to(json::serialize(asked) + "\n")).as_object();
  ExecResult result;
  if (answer.at("timed_out").as_bool()) {
    result.outcome = Outcome::timed_out;
    return result;
  }
  result.exit_code = static_cast<int>(answer.at("code").as_int64()) & 0xFF;
  result.stdout = std::string(answer.at("out").as_string());
  result.stderr = std::string(answer.at("err").as_string());
  return result;
}

}  // namespace casemate
