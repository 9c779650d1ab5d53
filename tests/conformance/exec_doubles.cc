#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "casemate/core/errors.h"
#include "tests/conformance/doubles.h"

namespace casemate::conformance_tests {
namespace {

using conformance::Suite;
using Exec = decltype(Faults::exec);

// In double quotes, as one does who thinks of spaces only.
std::string in_double_quotes(const std::string& word) {
  std::string text = "\"";
  for (const char letter : word) {
    if (letter == '"' || letter == '\\') text += '\\';
    text += letter;
  }
  return text + '"';
}

Exec by_shell(std::string (*quote)(const std::string&)) {
  return [quote](Call& good, ExecRequest request, const CallControl& control) {
    if (const auto* argv = std::get_if<Argv>(&request.command)) {
      std::string line;
      for (const std::string& word : argv->words) line += quote(word) + " ";
      request.command = ShellLine{line};
    }
    return good.exec(request, control);
  };
}

Exec ends_changed(std::function<void(ExecResult&)> change) {
  return [change](Call& good, const ExecRequest& request, const CallControl& control) {
    ExecResult result = good.exec(request, control);
    change(result);
    return result;
  };
}

Exec timeouts_changed(std::function<void(ExecResult&)> change) {
  return ends_changed([change](ExecResult& result) {
    if (result.outcome == Outcome::timed_out) change(result);
  });
}

}  // namespace

std::vector<Double> exec_doubles() {
  std::vector<Double> all;
  const auto add = [&](std::string name, Exec exec) {
    all.push_back({std::move(name), {Suite::exec}, {.exec = std::move(exec)}});
  };
  add("merges the streams", ends_changed([](ExecResult& result) {
        result.stdout += result.stderr;
        result.stderr.clear();
      }));
  add("tells every failure as 1", ends_changed([](ExecResult& result) {
        if (result.exit_code.value_or(0) != 0) result.exit_code = 1;
      }));
  add("tells exit codes over 127 as signals", ends_changed([](ExecResult& result) {
        if (result.exit_code.value_or(0) <= 128) return;
        result.outcome = Outcome::signaled;
        result.signal = signal_name(*result.exit_code - 128);
        result.exit_code.reset();
      }));
  add("joins argv for a shell", by_shell([](const std::string& word) { return word; }));
  add("quotes argv with double quotes", by_shell(in_double_quotes));
  add("starts every program in work/",
      [](Call& good, ExecRequest request, const CallControl& control) {
        request.directory.clear();
        return good.exec(request, control);
      });
  add("takes relative directories from the call's",
      [](Call& good, ExecRequest request, const CallControl& control) {
        if (!request.directory.empty() && !request.directory.starts_with('/')) {
          request.directory = good.directory();
        }
        return good.exec(request, control);
      });
  add("times out at once", [](Call& good, const ExecRequest& request, const CallControl& control) {
    if (!request.timeout) return good.exec(request, control);
    ExecResult result;
    result.outcome = Outcome::timed_out;
    result.stdout = "begun";
    return result;
  });
  add("tells a timeout late",
      timeouts_changed([](ExecResult&) { std::this_thread::sleep_for(std::chrono::seconds(3)); }));
  add("loses the output at a timeout",
      timeouts_changed([](ExecResult& result) { result.stdout.clear(); }));
  add("tells a timeout as exit code 124", timeouts_changed([](ExecResult& result) {
        result.outcome = Outcome::exited;
        result.exit_code = 124;
      }));
  add("throws at a timeout",
      timeouts_changed([](ExecResult&) { throw SandboxTimeout("the program took too long"); }));
  return all;
}

std::vector<WebDouble> web_doubles() {
  return {
      {"lets nothing out", [](const SandboxSpec&, unsigned) { return 0; }},
      {"lets everything out", [](const SandboxSpec&, unsigned port) { return ask(port); }},
      {"lets everything out under closed",
       [](const SandboxSpec& spec, unsigned port) {
         return spec.egress == Egress::closed ? ask(port) : as_allowed(spec, port);
       }},
      {"lets every port of a listed host out",
       [](const SandboxSpec& spec, unsigned port) {
         return spec.egress == Egress::allowlist ? ask(port) : 0;
       }},
      {"connects before it refuses",
       [](const SandboxSpec& spec, unsigned port) {
         const int status = ask(port);
         return as_allowed(spec, port) != 0 ? status : 0;
       }},
      {"answers with an error page of its own",
       [](const SandboxSpec& spec, unsigned port) {
         const int status = as_allowed(spec, port);
         return status == 0 ? 0 : 403;
       }},
      {"lets datagrams out", as_allowed,
       [](const SandboxSpec&, const std::string& place) { return place.starts_with("udp"); }},
      {"lets datagrams of IPv6 out where there is a list", as_allowed,
       [](const SandboxSpec& spec, const std::string& place) {
         return spec.egress == Egress::allowlist && place.starts_with("udp ::1");
       }},
      {"lets IPv6 out", as_allowed,
       [](const SandboxSpec&, const std::string& place) { return place.starts_with("tcp"); }},
      {"lets IPv6 out where nothing may go", as_allowed,
       [](const SandboxSpec& spec, const std::string& place) {
         return spec.egress == Egress::closed && place.starts_with("tcp");
       }},
  };
}

}  // namespace casemate::conformance_tests
