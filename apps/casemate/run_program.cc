#include "apps/casemate/run_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/casemate/check_only.h"
#include "apps/casemate/console.h"
#include "apps/casemate/doctor_findings.h"
#include "apps/casemate/host_tools.h"
#include "apps/casemate/option_parser.h"
#include "apps/casemate/out_directory.h"
#include "apps/casemate/program_file.h"
#include "apps/casemate/refusal.h"
#include "apps/casemate/stop_requests.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/exec.h"
#include "casemate/core/spec_match.h"
#include "casemate/kinds/codeact/run.h"
#include "casemate/kinds/codeact/run_json.h"
#include "casemate/policy/router.h"
#include "casemate/transfer/artifact_name.h"
#include "casemate/transfer/file_store.h"
#include "casemate/transfer/sink.h"

namespace casemate::app {

namespace {

// Of each stream in the JSON object (surface, section 2).
constexpr std::uint64_t kJsonStreamBytes = 10 * kMiB;

// More than any name has when every byte of it is escaped.
constexpr std::size_t kWholeName = 4096;

// What is known before the start need not cost a run. Whatever comes to lie there meanwhile is
// refused by the sink.
void refuse_outputs_that_are_there(const RunOptions& options) {
  if (options.overwrite) return;
  for (const std::string& name : options.outputs) {
    // A name that breaks a rule is refused by that rule, and leads nowhere here.
    if (artifact_name_fault(name)) continue;
    const auto path = std::filesystem::path(*options.out_dir) / normalise_nfc(name);
    std::error_code ignored;
    const auto type = std::filesystem::symlink_status(path, ignored).type();
    if (type == std::filesystem::file_type::none || type == std::filesystem::file_type::not_found) {
      continue;
    }
    throw SandboxLandingExists(
        fmt::format("\"{}\" is already there in --out-dir", escape_for_display(name)),
        type == std::filesystem::file_type::directory ? "choose another --output or --out-dir"
                                                      : "give --overwrite or another --out-dir");
  }
}

CodeactWiring make_wiring(const RunOptions& options, const Backends& backends, const Log& log) {
  CodeactOutputs outputs = CodeactOutputs::none;
  if (options.manifest) outputs = CodeactOutputs::manifest;
  if (!options.outputs.empty()) outputs = CodeactOutputs::declared;
  refuse_denied_host_tools(options.host_tools, options.denied_identities);
  auto host_tools = make_host_tools(options.host_tools, log);
  const SandboxSpec spec = make_spec(options, outputs, host_tools);
  CodeactWiring wiring{.router = make_router(options, backends, spec, log),
                       .spec = spec,
                       .outputs = outputs,
                       .capture_bytes = options.json ? kJsonStreamBytes : 0,
                       .owner = {"casemate run", {}, log},
                       .host_tools = host_tools,
                       .ends_sandbox = options.own_key};
  if (!options.files.empty()) {
    wiring.file_store = std::make_shared<NamedFilesStore>(
        std::vector<std::pair<std::string, std::filesystem::path>>(options.files.begin(),
                                                                   options.files.end()));
  }
  return wiring;
}

CodeactRequest make_request(const RunOptions& options) {
  CodeactRequest request;
  request.code = read_program(options.program, options.files_in.max_bytes_per_file);
  for (const auto& [name, path] : options.files) request.files.push_back(name);
  request.outputs = options.outputs;
  request.arguments = options.arguments;
  request.environment = options.environment;
  if (options.forward_stdin) request.stdin_descriptor = STDIN_FILENO;
  request.timeout = options.timeout;
  return request;
}

// An output that was named and not written fails a run that did not fail by itself.
void count_missing_outputs(CodeactRun& run) {
  const bool succeeded = run.result.outcome == Outcome::exited && run.result.exit_code == 0;
  if (!succeeded || run.missing_outputs.empty() || run.collect_error) return;
  std::string names;
  for (const std::string& name : run.missing_outputs) {
    names += (names.empty() ? "" : ", ") + escape_for_display(name);
  }
  run.collect_error = CodeactCollectError{
      .code = "SandboxOutputMissing",
      .message = "the program did not write: " + names,
      .hint = "have it write them in its current directory, under exactly these names",
      .sentence = {}};
}

void log_run(const CodeactRun& run, const Log& log) {
  const auto ms = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  const CodeactTimings& timings = run.timings;
  write_log(log, LogLevel::info,
            fmt::format("sandbox {} of backend {}, isolation {}, image {}, {}", run.sandbox.id,
                        run.sandbox.backend, to_string(run.sandbox.isolation), run.sandbox.image,
                        run.sandbox.reused ? "which was there" : "made for this run"));
  write_log(log, LogLevel::info,
            fmt::format("{}; ms: acquire {:.1f}, stage {:.1f}, run {:.1f}, collect {:.1f}, in all "
                        "{:.1f}; processor {:.1f}; peak memory {} bytes",
                        to_string(run.result.outcome), ms(timings.acquire), ms(timings.stage),
                        ms(timings.run), ms(timings.collect), ms(timings.total), ms(run.result.cpu),
                        run.result.peak_memory));
}

void say_what_came_of_it(const RunOptions& options, const CodeactRun& run) {
  for (const std::string& note : run.notes) say("note: " + note);
  for (const LandedArtifact& artifact : run.artifacts) {
    say_line("saved " + escape_for_display(artifact.name, kWholeName));
  }
  for (const std::string& name : run.missing_outputs) {
    say_line("missing " + escape_for_display(name, kWholeName));
  }
  const bool lands = options.manifest || !options.outputs.empty();
  if (!lands && (options.out_dir || options.overwrite)) {
    say("note: nothing lands: there is no --output and no --manifest.");
  }
  if (run.collect_error) {
    say_error(run.collect_error->code, run.collect_error->message, run.collect_error->hint);
  }
}

// The program had ended, but what was asked for is not there because somebody stopped it: to
// whoever started the run that is the same as a stop a moment earlier.
void count_a_stop_while_collecting(CodeactRun& run) {
  if (run.collect_error && run.collect_error->code == "SandboxCancelled") {
    run.result.outcome = Outcome::cancelled;
  }
}

int exit_status(const CodeactRun& run, const StopRequests& stop) {
  if (run.result.outcome == Outcome::cancelled) {
    return stop.exit_status().value_or(shell_exit_status(run.result));
  }
  const int status = shell_exit_status(run.result);
  return status == 0 && run.collect_error ? kExitRefused : status;
}

// Ends the sandbox of a key that is this run's own before the exit, so that nothing is left when
// the caller goes on, also where the run did not come to the end at which it does so itself. A key
// that others may share is ended by its last user, a moment later.
class OwnSandbox {
 public:
  // `router`: the one that serves the run by then, which need not be the one that it began with.
  OwnSandbox(const RunOptions& options, const SandboxRouter& router)
      : key_(options.own_key ? std::optional(options.key) : std::nullopt), router_(router) {}
  ~OwnSandbox() {
    if (key_) router_.dispose(*key_);
  }
  void ended() { key_.reset(); }
  OwnSandbox(const OwnSandbox&) = delete;
  OwnSandbox& operator=(const OwnSandbox&) = delete;

 private:
  std::optional<SandboxKey> key_;
  const SandboxRouter& router_;
};

RouterOptions host_policy(const RunOptions& options, const Log& log) {
  RouterOptions router;
  router.min_isolation = options.min_isolation;
  router.denied_capabilities = options.denied_capabilities;
  router.denied_identities = options.denied_identities;
  router.log = log;
  return router;
}

// With that one alone: what this run makes is there, and no engine beside it is asked to end what
// it never had.
SandboxRouter router_with(const RunOptions& options, const Backends& backends,
                          const std::string& selected, const Log& log) {
  const auto found = std::ranges::find_if(
      backends, [&](const auto& backend) { return backend->declarations().name == selected; });
  return SandboxRouter({found == backends.end() ? backends.front() : *found},
                       host_policy(options, log));
}

// Which backends are available is asked only when the first choice could not even prepare a
// sandbox, of all steps (`steps` counts those that were told) the first: to ask costs a sandbox,
// most runs never need the answer, and a program that may have begun is never run again.
CodeactRun run_where_available(const RunOptions& options, const Backends& backends,
                               CodeactWiring& wiring, const CodeactRequest& request,
                               const int& steps, const CallControl& control) {
  try {
    return run_codeact(wiring, options.key, request, control);
  } catch (const SandboxUnavailable& failure) {
    if (options.backend || steps > 1) throw;
    const Log& log = wiring.owner.log;
    const std::string failed = wiring.router.backend()->declarations().name;
    const auto next = first_available(options, backends, wiring.spec, log);
    if (!next || next->name == failed) throw;
    write_log(log, LogLevel::info,
              fmt::format("backend {} is not available here, so {} is used: {}", failed, next->name,
                          failure.message()));
    for (const std::string& why : next->passed_over) say("note: " + why);
    wiring.router = router_with(options, backends, next->name, log);
    return run_codeact(wiring, options.key, request, control);
  }
}

int run_to_its_end(const RunOptions& options, const Backends& backends, CodeactWiring wiring) {
  CodeactRequest request = make_request(options);
  std::optional<OutDirectory> out_directory;
  if (wiring.outputs != CodeactOutputs::none) {
    out_directory.emplace(*options.out_dir);
    wiring.output_sink = make_file_system_sink(
        *options.out_dir, {options.overwrite ? Overwrite::yes : Overwrite::no, {}});
  }
  const StopRequests stop;
  GuestStream out(STDOUT_FILENO, stop.token());
  GuestStream err(STDERR_FILENO, stop.token());
  if (!options.json) {
    request.on_output = [&](OutputStream stream, std::span<const char> bytes) {
      (stream == OutputStream::out ? out : err).write(bytes);
    };
  }
  int steps = 0;
  request.progress = [&](std::string_view step) {
    ++steps;
    write_log(wiring.owner.log, LogLevel::info, step);
    // The last step that is told before the output comes is the program's start.
    const auto end = std::chrono::steady_clock::now() + options.timeout;
    out.set_end_of_time(end);
    err.set_end_of_time(end);
  };
  OwnSandbox sandbox(options, wiring.router);
  try {
    CodeactRun run = run_where_available(options, backends, wiring, request, steps,
                                         {std::nullopt, stop.token()});
    if (run.sandbox_ended) sandbox.ended();
    if (out_directory) out_directory->keep();
    out.finish();
    err.finish();
    if (run.collect_error) {
      run.collect_error->hint = hint_in_options(run.collect_error->code, run.collect_error->hint);
    }
    count_missing_outputs(run);
    count_a_stop_while_collecting(run);
    if (options.json) write_all(STDOUT_FILENO, codeact_run_json(run, ArtifactPaths::shown) + '\n');
    log_run(run, wiring.owner.log);
    say_what_came_of_it(options, run);
    const int status = exit_status(run, stop);
    if (out.dropped_bytes() + err.dropped_bytes() == 0 || stop.exit_status()) return status;
    say_error("OutputFailed", "nobody read the output; the rest of it was dropped",
              "read it, or send it to a file");
    return status == 0 ? kExitRefused : status;
  } catch (const SandboxCancelled& cancelled) {
    report(in_words_of_the_command_line(cancelled),
           options.json ? OutputFormat::json : OutputFormat::streams);
    return stop.exit_status().value_or(128 + SIGINT);
  }
}

// The same road up to where a sandbox would be started.
int check(const RunOptions& options, const Backends& backends, const Log& log) {
  CodeactWiring wiring = make_wiring(options, start_nothing(backends), log);
  if (wiring.outputs != CodeactOutputs::none) wiring.output_sink = sink_for_check();
  try {
    run_codeact(wiring, options.key, make_request(options), {});
  } catch (const WouldStart&) {
    // No status: those of the surface say what became of a program.
    if (options.json) write_all(STDOUT_FILENO, "{\"check\":\"passed\",\"error\":null}\n");
    return 0;
  }
  throw std::logic_error("a check got past the start of a sandbox");
}

}  // namespace

SandboxSpec make_spec(const RunOptions& options, CodeactOutputs outputs,
                      std::shared_ptr<HostToolRegistry> host_tools) {
  CodeactSpecOptions spec;
  spec.image = options.image;
  spec.outputs = outputs;
  spec.host_tools = std::move(host_tools);
  spec.files_in = options.files_in;
  spec.files_out = options.files_out;
  spec.egress_allow = options.egress_allow;
  spec.resources = options.resources;
  spec.labels = options.labels;
  spec.keep_idle = options.keep.value_or(std::chrono::milliseconds{0});
  return codeact_sandbox_spec(spec);
}

std::string backend_of(const RunOptions& options, const Backends& backends,
                       const SandboxSpec& spec) {
  if (options.backend) return *options.backend;
  const Isolation floor = options.min_isolation;
  auto found = std::ranges::find_if(backends, [&](const auto& backend) {
    return !match_declarations(spec, floor, backend->declarations());
  });
  // None: then the refusal is that of the cheapest which is strong enough.
  if (found == backends.end()) {
    found = std::ranges::find_if(backends, [&](const auto& backend) {
      return !match_host_floor(floor, backend->declarations());
    });
  }
  return (found == backends.end() ? backends.front() : *found)->declarations().name;
}

std::optional<AvailableBackend> first_available(const RunOptions& options, const Backends& backends,
                                                const SandboxSpec& spec, const Log& log) {
  try {
    RouterOptions router = host_policy(options, log);
    router.selection = Selection::first_that_can_serve;
    const auto chosen = SandboxRouter(backends, std::move(router)).backend_for(spec);
    AvailableBackend first{chosen->declarations().name, {}};
    // Asked once more: the router chooses, and does not tell why it was not another.
    for (const auto& backend : backends) {
      if (backend == chosen) break;
      const BackendDeclarations declared = backend->declarations();
      if (match_declarations(spec, options.min_isolation, declared)) continue;
      const BackendProbe found = backend->probe();
      if (!is_broken(*backend, found)) continue;
      first.passed_over.push_back(fmt::format("backend {} does not work, so {} is used: {}",
                                              declared.name, first.name,
                                              options_named_here(found.reason)));
    }
    return first;
  } catch (const SandboxError& none) {
    write_log(log, LogLevel::info, none.message());
    return std::nullopt;
  }
}

SandboxRouter make_router(const RunOptions& options, const Backends& backends,
                          const SandboxSpec& spec, const Log& log) {
  return router_with(options, backends, backend_of(options, backends, spec), log);
}

void refuse_unknown_backend(const RunOptions& options, const Backends& backends) {
  if (!options.backend) return;
  std::vector<std::string> names;
  names.reserve(backends.size());
  for (const auto& backend : backends) names.push_back(backend->declarations().name);
  one_of("--backend", *options.backend, std::vector<std::string_view>(names.begin(), names.end()));
}

int run_program(const RunOptions& options, const Backends& backends, const Log& log) {
  refuse_unknown_backend(options, backends);
  if (options.manifest || !options.outputs.empty()) refuse_unusable(*options.out_dir);
  refuse_outputs_that_are_there(options);
  if (options.check) return check(options, backends, log);
  return run_to_its_end(options, backends, make_wiring(options, backends, log));
}

}  // namespace casemate::app
