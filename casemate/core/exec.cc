#include "casemate/core/exec.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <array>

#include "casemate/core/errors.h"

namespace casemate {
namespace {

struct SignalName {
  int number;
  std::string_view name;
};

// Linux's, in the order of their numbers on x86 and Arm. Where a number has two names, the one
// that people type.
constexpr std::array kSignals{
    SignalName{SIGHUP, "SIGHUP"},   SignalName{SIGINT, "SIGINT"},
    SignalName{SIGQUIT, "SIGQUIT"}, SignalName{SIGILL, "SIGILL"},
    SignalName{SIGTRAP, "SIGTRAP"}, SignalName{SIGABRT, "SIGABRT"},
    SignalName{SIGBUS, "SIGBUS"},   SignalName{SIGFPE, "SIGFPE"},
    SignalName{SIGKILL, "SIGKILL"}, SignalName{SIGUSR1, "SIGUSR1"},
    SignalName{SIGSEGV, "SIGSEGV"}, SignalName{SIGUSR2, "SIGUSR2"},
    SignalName{SIGPIPE, "SIGPIPE"}, SignalName{SIGALRM, "SIGALRM"},
    SignalName{SIGTERM, "SIGTERM"}, SignalName{SIGSTKFLT, "SIGSTKFLT"},
    SignalName{SIGCHLD, "SIGCHLD"}, SignalName{SIGCONT, "SIGCONT"},
    SignalName{SIGSTOP, "SIGSTOP"}, SignalName{SIGTSTP, "SIGTSTP"},
    SignalName{SIGTTIN, "SIGTTIN"}, SignalName{SIGTTOU, "SIGTTOU"},
    SignalName{SIGURG, "SIGURG"},   SignalName{SIGXCPU, "SIGXCPU"},
    SignalName{SIGXFSZ, "SIGXFSZ"}, SignalName{SIGVTALRM, "SIGVTALRM"},
    SignalName{SIGPROF, "SIGPROF"}, SignalName{SIGWINCH, "SIGWINCH"},
    SignalName{SIGIO, "SIGIO"},     SignalName{SIGPWR, "SIGPWR"},
    SignalName{SIGSYS, "SIGSYS"},
};

constexpr int kLastSignal = 64;

}  // namespace

std::optional<int> signal_number(std::string_view name) {
  const auto found = std::ranges::find(kSignals, name, &SignalName::name);
  if (found != kSignals.end()) {
    return found->number;
  }
  // A real-time signal has no name; `signal_name` writes its number.
  for (int number = 1; number <= kLastSignal; ++number) {
    if (name == signal_name(number)) {
      return number;
    }
  }
  return std::nullopt;
}

std::string signal_name(int number) {
  const auto found = std::ranges::find(kSignals, number, &SignalName::number);
  return found != kSignals.end() ? std::string(found->name) : fmt::format("SIG{}", number);
}

void check_lifetime(const ExecRequest& request) {
  if (request.lifetime == Lifetime::call) return;
  if (request.stdin_mode == StdinMode::empty && !request.on_output) return;
  throw InvalidArgument(fmt::format("a program that stays with the sandbox has no {}",
                                    request.on_output ? "output that anybody hears" : "input"),
                        "let it write to files, or give it the lifetime of its call");
}

int shell_exit_status(const ExecResult& result) {
  constexpr int kTimedOut = 124;
  constexpr int kUnknownStatus = 125;
  constexpr int kSignalBase = 128;
  switch (result.outcome) {
    case Outcome::exited:
      return result.exit_code.value_or(kUnknownStatus);
    case Outcome::signaled: {
      const std::optional<int> number = signal_number(result.signal.value_or(""));
      return number ? kSignalBase + *number : kUnknownStatus;
    }
    case Outcome::timed_out:
      return kTimedOut;
    case Outcome::cancelled:
      return kSignalBase + SIGINT;
    case Outcome::out_of_memory:
      return kSignalBase + SIGKILL;
  }
  return kUnknownStatus;
}

}  // namespace casemate
