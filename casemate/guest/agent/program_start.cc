#include "casemate/guest/agent/program_start.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <tuple>
#include <utility>

#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/poll.h"
#include "casemate/sys/socket.h"

namespace casemate::guest {
namespace {

void set_nonblocking(const sys::UniqueFd& fd) {
  if (!fd) return;
  const int flags = fcntl(fd.get(), F_GETFL);
  if (flags < 0 || fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) sys::throw_errno("F_SETFL");
}

std::optional<Failure> read_report(int fd) {
  ChildReport report;
  ssize_t got = 0;
  do {
    got = read(fd, &report, sizeof report);
  } while (got < 0 && errno == EINTR);
  if (got == 0) return std::nullopt;
  if (got != sizeof report) return Failure{FailureReason::no_resources, EIO, "no report"};
  switch (report.stage) {
    case ChildReport::Stage::program:
      return Failure{FailureReason::errno_value, report.error, {}};
    case ChildReport::Stage::directory:
      return Failure{FailureReason::directory, report.error, {}};
    case ChildReport::Stage::prepare:
      break;
  }
  return Failure{FailureReason::no_resources, report.error, "confining the program"};
}

}  // namespace

ProgramStart::ProgramStart(Stay stay, std::span<const int> groups, ExecChildren& children,
                           Place& place)
    : stays_(stay == Stay::yes), groups_(groups), children_(children), place_(place) {}

ProgramStart::Pipe ProgramStart::make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) sys::throw_errno("pipe2");
  return {sys::UniqueFd(ends[0]), sys::UniqueFd(ends[1])};
}

void ProgramStart::make_pipes() {
  for (Pipe* each : {&in_, &out_, &err_, &report_}) *each = {};
  if (!stays_) {
    in_ = make_pipe();
    place_.give_pipe(in_.read.get());
  }
  no_input_ = sys::open_at(AT_FDCWD, "/dev/null", O_RDONLY);
  for (Pipe* output : {&out_, &err_}) {
    if (stays_) {
      output->write = sys::open_at(AT_FDCWD, "/dev/null", O_WRONLY);
    } else {
      *output = make_pipe();
      place_.give_pipe(output->write.get());
    }
  }
  report_ = make_pipe();
}

ChildDescriptors ProgramStart::childs_ends() const {
  return {.in = in_.read.get(),
          .no_input = no_input_.get(),
          .out = out_.write.get(),
          .err = err_.write.get(),
          .report = report_.write.get(),
          .groups = groups_};
}

void ProgramStart::start_ahead(int connection) {
  make_pipes();
  if (!place_.may_start_ahead()) return;
  std::array<pollfd, 1> entries{pollfd{connection, POLLIN, 0}};
  if (sys::poll_until(entries, sys::SteadyTime::clock::now()) != 0) return;
  sys::UniqueFd childs;
  std::tie(order_, childs) = sys::socket_pair(sys::SocketType::stream);
  children_.set_program(start_waiting_child(childs.get(), childs_ends(), place_));
  if (children_.program() < 0) order_.reset();
}

// Lets the one that was started ahead become the program, if it is still there. What became of it
// otherwise is nothing of the program's, which gets a child of its own.
bool ProgramStart::let_go_on(std::string_view text, int directory, Input input) {
  if (!order_) return false;
  children_.reap();
  const bool sent = !children_.program_status() && send_order(order_.get(), text, directory, input);
  order_.reset();
  if (sent) return true;
  children_.drop_program();
  make_pipes();
  return false;
}

std::optional<Failure> ProgramStart::start(const Exec& request, std::string_view text,
                                           int directory) {
  const Input input = request.stdin_piped ? Input::piped : Input::none;
  place_.count_refusals();
  if (!let_go_on(text, directory, input)) {
    const ProgramImage image(request.argv, request.environment);
    const pid_t pid = start_program(image, directory, input, childs_ends(), place_);
    if (pid < 0) sys::throw_errno("vfork");
    children_.set_program(pid);
  }
  for (sys::UniqueFd* childs : {&in_.read, &no_input_, &out_.write, &err_.write, &report_.write}) {
    childs->reset();
  }
  const std::optional<Failure> failure = read_report(report_.read.get());
  report_.read.reset();
  return failure;
}

ProgramStart::Streams ProgramStart::take_streams() {
  Streams streams{std::move(in_.write), std::move(out_.read), std::move(err_.read)};
  for (const sys::UniqueFd* each : {&streams.in, &streams.out, &streams.err}) {
    set_nonblocking(*each);
  }
  return streams;
}

}  // namespace casemate::guest
