#include "casemate/kinds/codeact/run.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/host_tools/session.h"
#include "casemate/kinds/codeact/manifest.h"
#include "casemate/kinds/codeact/notes.h"
#include "casemate/kinds/codeact/over_files.h"
#include "casemate/kinds/codeact/request_checks.h"
#include "casemate/kinds/codeact/waiting.h"
#include "casemate/tool/refusals.h"
#include "casemate/transfer/artifact_name.h"
#include "casemate/transfer/collect.h"

namespace casemate {
namespace {

using codeact::SharedFile;

constexpr std::string_view kInterpreter = "python3";
// The host's own is the system's: what stands earlier on a PATH there may lead out of /usr.
constexpr std::string_view kHostImage = "host";
constexpr std::string_view kHostInterpreter = "/usr/bin/python3";
constexpr std::string_view kProgramPath = "program/program.py";

class Stopwatch {
 public:
  std::chrono::nanoseconds elapsed() const { return std::chrono::steady_clock::now() - start_; }
  // What passed since the last lap.
  std::chrono::nanoseconds lap() {
    const auto now = std::chrono::steady_clock::now();
    return now - std::exchange(last_, now);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = start_;
};

void tell(const CodeactRequest& request, std::string_view step) {
  if (request.progress) request.progress(step);
}

std::span<const char> bytes_of(const std::string& text) { return {text.data(), text.size()}; }

std::string_view interpreter_of(const std::string& image) {
  return image == kHostImage ? kHostInterpreter : kInterpreter;
}

bool wants_outputs(const CodeactWiring& wiring, const CodeactRequest& request) {
  return wiring.outputs == CodeactOutputs::manifest || !request.outputs.empty();
}

ExecRequest program_request(const CodeactWiring& wiring, const CodeactRequest& request,
                            std::string_view interpreter, const std::string& call_directory) {
  ExecRequest exec;
  std::vector<std::string> words{std::string(interpreter),
                                 fmt::format("{}/{}", call_directory, kProgramPath)};
  words.insert(words.end(), request.arguments.begin(), request.arguments.end());
  exec.command = Argv{std::move(words)};
  exec.environment = codeact_environment(request.environment);
  if (request.stdin_descriptor >= 0) {
    exec.stdin_mode = StdinMode::forwarded;
    exec.stdin_descriptor = request.stdin_descriptor;
  }
  exec.timeout = request.timeout;
  exec.capture_bytes = wiring.capture_bytes;
  exec.on_output = request.on_output;
  return exec;
}

// What `act` returns. No thread or descriptor to be had, or a sandbox that says that it bound the
// socket and did not: nobody would answer, and programs would wait.
template <typename Act>
auto served(Act act) {
  try {
    return act();
  } catch (const std::system_error& failure) {
    std::throw_with_nested(SandboxUnavailable(
        fmt::format("the host tools of a run could not be served: {}", failure.what())));
  }
}

// A program that began, and the call it runs in. The session comes first, so that a call whose
// program is gone is what ends before it.
struct Begun {
  std::unique_ptr<HostToolSession> host_tools;
  GuestCall call;
  std::unique_ptr<Process> process;
};

// The steps from an acquired sandbox to a program that runs in it.
class Beginning {
 public:
  Beginning(const CodeactWiring& wiring, const SandboxKey& key, const CodeactRequest& request,
            const std::vector<SharedFile>& files, const CallControl& control)
      : wiring_(wiring), key_(key), request_(request), files_(files), control_(control) {}

  Begun begin(CodeactRun& run, Stopwatch& watch) {
    try {
      return begin_or_try_anew(run, watch);
    } catch (const SandboxOutputError& failure) {
      if (listener_threw_) throw;
      // Nothing is collected yet, so its text is the provider's: no model may read it as ours.
      std::throw_with_nested(
          SandboxUnavailable(fmt::format("before the program began: {}: {}", failure.code(),
                                         replace_invalid_utf8(failure.message()))));
    }
  }

 private:
  // A sandbox may have died since somebody last heard of it. Before the program began nothing was
  // done that would be done twice, so that is found out by trying, and tried once more.
  Begun begin_or_try_anew(CodeactRun& run, Stopwatch& watch) {
    auto sandbox = acquire(run);
    try {
      return begin_in(std::move(sandbox), run, watch);
    } catch (const SandboxUnavailable& failure) {
      if (listener_threw_) throw;
      write_log(wiring_.owner.log, LogLevel::warning,
                fmt::format("{}: sandbox {} failed before the program began, trying another: {}",
                            wiring_.owner.tool, run.sandbox.id, line_for_log(failure)));
    }
    const SandboxInfo failed = run.sandbox;
    sandbox = acquire(run);
    // It may have refused the call and live on, with all that is in it.
    if (failed.reused && run.sandbox.id != failed.id) {
      run.notes.emplace_back(
          "the sandbox had ended and was made anew; what earlier calls left in it is gone.");
    }
    return begin_in(std::move(sandbox), run, watch);
  }

  // What a listener throws ends the run, whatever its class: no sandbox failed.
  void tell_step(std::string_view step) {
    try {
      tell(request_, step);
    } catch (...) {
      listener_threw_ = true;
      throw;
    }
  }

  std::shared_ptr<Sandbox> acquire(CodeactRun& run) {
    tell_step("preparing the sandbox");
    std::optional<BackendDeclarations> declared;
    if (wiring_.spec.host_tools) {
      if (const auto backend = wiring_.router.backend_for(wiring_.spec)) {
        declared = backend->declarations();
      }
    }
    auto sandbox = wiring_.router.acquire(key_, wiring_.spec, control_);
    run.sandbox = sandbox->info();
    if (declared) {
      // Between the two the router may have found the one that it chose first unavailable.
      if (declared->name != run.sandbox.backend) {
        throw SandboxUnavailable("the backend changed while a sandbox was acquired");
      }
      over_files_ = declared->host_tool_transport == HostToolTransport::files;
    }
    return sandbox;
  }

  Begun begin_in(std::shared_ptr<Sandbox> sandbox, CodeactRun& run, Stopwatch& watch) {
    auto host_tools = make_session();
    const bool channel = host_tools && !over_files_;
    CallProfile profile;
    profile.starts_program = !over_files_;
    profile.ends_with_program = !over_files_ && !wants_outputs(wiring_, request_);
    if (channel) profile.host_tool_socket = host_tools->socket();
    if (!host_tools && codeact::can_wait_for_its_file(request_)) {
      profile.expects = codeact_expected_program(run.sandbox.image, request_.environment);
    }
    GuestCall call = GuestCall::open_on(wiring_.router, std::move(sandbox), key_, control_,
                                        wiring_.owner, profile);
    run.timings.acquire += watch.lap();
    try {
      if (channel) served([&] { host_tools->serve(); });
      put_files(call);
      run.timings.stage += watch.lap();
      tell_step("running the program");
      auto process = over_files_ ? codeact::program_over_files(
                                       call.call(), host_tools->run(), wiring_, request_,
                                       interpreter_of(run.sandbox.image), run.notes)
                                 : start(call.call(), host_tools.get(), run.sandbox.image);
      return {std::move(host_tools), std::move(call), std::move(process)};
    } catch (const SandboxUnavailable&) {
      if (!listener_threw_) call.abandon();
      throw;
    }
  }

  std::unique_ptr<HostToolSession> make_session() const {
    if (!wiring_.spec.host_tools) return nullptr;
    return served([&] {
      return std::make_unique<HostToolSession>(
          wiring_.host_tools, HostToolRunOptions{.key = key_, .log = wiring_.owner.log});
    });
  }

  void put_files(GuestCall& call) const {
    const std::string work = call.work_directory();
    for (const SharedFile& file : files_) {
      call.call().write_file(file.name, bytes_of(file.content), work, control_);
    }
    if (over_files_) {
      return codeact::stage_over_files(call.call(), *wiring_.host_tools, request_, control_);
    }
    call.call().write_file(kProgramPath, bytes_of(request_.code), call.call().directory(),
                           control_);
  }

  std::unique_ptr<Process> start(Call& call, const HostToolSession* host_tools,
                                 const std::string& image) const {
    const std::string_view interpreter = interpreter_of(image);
    try {
      ExecRequest exec = program_request(wiring_, request_, interpreter, call.directory());
      if (host_tools != nullptr) {
        // The host's, and no request's to replace.
        for (auto& [name, value] : host_tools->environment(call.host_tool_address())) {
          exec.environment[name] = value;
        }
      }
      return call.start(exec, control_);
    } catch (const SandboxFileError& failure) {
      const int error = failure.error_number();
      if (error != ENOENT && error != EACCES && error != ENOEXEC) throw;
      std::throw_with_nested(SandboxImageInvalid(
          fmt::format("image '{}' has no {}{} that can be executed", escape_for_display(image),
                      interpreter, interpreter == kInterpreter ? " on its PATH" : ""),
          "use an image with Python 3"));
    }
  }

  const CodeactWiring& wiring_;
  const SandboxKey& key_;
  const CodeactRequest& request_;
  const std::vector<SharedFile>& files_;
  const CallControl& control_;
  bool listener_threw_ = false;
  // As the backend that serves declares: calls of host tools travel as files, not over a socket.
  bool over_files_ = false;
};

// Throws `failure` anew with what is known of the run that it ended; returns when it is none of the
// provider's (a listener may throw the same class).
template <typename R>
void throw_lost(const R& failure, CodeactRun& run) {
  const auto* received = dynamic_cast<const ReceivedOutput*>(&failure);
  if (received == nullptr) return;
  run.result.stdout = received->out.bytes;
  run.result.stdout_missing_bytes = received->out.missing_bytes;
  run.result.stdout_cut_at = received->out.cut_at;
  run.result.stderr = received->err.bytes;
  run.result.stderr_missing_bytes = received->err.missing_bytes;
  run.result.stderr_cut_at = received->err.cut_at;
  throw Carrying<R, CodeactRun>(failure, std::move(run));
}

// The program's result, once it has ended.
ExecResult wait_for(Process& process, const CallControl& control, CodeactRun& run) {
  try {
    return process.wait(control);
  } catch (const SandboxUnavailable& failure) {
    throw_lost(failure, run);
    throw;
  } catch (const SandboxTimeout& failure) {
    throw_lost(failure, run);
    throw;
  }
}

// Tells whether something may have landed when something was thrown.
class WatchedSink final : public OutputSink {
 public:
  explicit WatchedSink(OutputSink& sink) : sink_(sink) {}

  LandedArtifact deliver(const Artifact& artifact) override {
    begun_ = true;
    return sink_.deliver(artifact);
  }
  std::vector<LandedArtifact> deliver_all(std::span<const Artifact> artifacts) override {
    begun_ = true;
    return sink_.deliver_all(artifacts);
  }
  bool lands_all_or_none() const override { return sink_.lands_all_or_none(); }
  NameNormalization normalization() const override { return sink_.normalization(); }

  // Whether something may have landed although it threw.
  bool may_have_landed() const { return begun_ && !lands_all_or_none(); }

 private:
  OutputSink& sink_;
  bool begun_ = false;
};

void collect_named(const std::vector<std::string>& names, const SandboxSpec& spec, OutputSink& sink,
                   GuestCall& call, const CallControl& control, CodeactRun& run) {
  std::vector<DeclaredOutput> outputs;
  for (const std::string& name : names) {
    DeclaredOutput output;
    output.path = name;
    output.required = false;
    outputs.push_back(std::move(output));
  }
  const std::string work = call.work_directory();
  CollectReport report = collect_outputs(
      call.call(), spec,
      {.sink = &sink, .outputs = outputs, .working_directory = work, .control = control});
  run.artifacts = std::move(report.landed);
  run.missing_outputs = std::move(report.missing);
  std::ranges::sort(run.missing_outputs);
}

void collect_listed(const CodeactWiring& wiring, OutputSink& sink, GuestCall& call,
                    const CallControl& control, CodeactRun& run) {
  const codeact::Manifest manifest =
      codeact::read_manifest(call.call(), call.work_directory(), wiring.spec.files_out, control);
  if (manifest.names.empty()) {
    run.notes.push_back(fmt::format("{} {}, so nothing was saved.", kManifestName,
                                    manifest.written ? "names no file" : "was not written"));
    return;
  }
  SandboxSpec spec = wiring.spec;
  spec.files_out = manifest.budget(spec.files_out);
  codeact::check_output_names(manifest.names, spec.files_out, CodeactOutputs::manifest, sink);
  collect_named(manifest.names, spec, sink, call, control, run);
}

CodeactCollectError collect_error(const std::exception& failure, bool may_have_landed) {
  CodeactCollectError error;
  error.code = "SinkFailed";
  error.message = failure.what();
  std::string reason = "Error: the outputs could not be saved.";
  if (const auto* refusal = dynamic_cast<const SandboxError*>(&failure)) {
    error.code = refusal->code();
    error.hint = refusal->hint();
    const bool for_models = dynamic_cast<const SandboxOutputError*>(refusal) != nullptr ||
                            dynamic_cast<const ModelFacingRefusal*>(refusal) != nullptr;
    if (for_models) reason = sentence_for_model(*refusal);
    if (const auto* named = dynamic_cast<const ArtifactNameRefused*>(refusal)) {
      error.message = named->operator_message();
    }
  }
  if (!reason.ends_with('.')) reason += '.';
  error.sentence = reason + (may_have_landed ? " Some outputs may already have been saved."
                                             : " Nothing was saved.");
  return error;
}

// After any program that was not cancelled: what it saved before it failed is often the best clue.
void collect(const CodeactWiring& wiring, const CodeactRequest& request, GuestCall& call,
             const CallControl& control, CodeactRun& run) {
  if (!wants_outputs(wiring, request) || run.result.outcome == Outcome::cancelled) return;
  tell(request, "collecting outputs");
  WatchedSink sink(*wiring.output_sink);
  // The program's own result is never lost to what became of its files.
  const auto failed = [&](const std::exception& failure) {
    write_log(wiring.owner.log, LogLevel::warning,
              fmt::format("{}: collecting: {}", wiring.owner.tool, line_for_log(failure)));
    run.collect_error = collect_error(failure, sink.may_have_landed());
  };
  try {
    if (wiring.outputs == CodeactOutputs::manifest) {
      collect_listed(wiring, sink, call, control, run);
    } else {
      collect_named(request.outputs, wiring.spec, sink, call, control, run);
    }
  } catch (const std::exception& failure) {
    failed(failure);
  } catch (const abi::__forced_unwind&) {
    throw;  // the thread is being cancelled
  } catch (...) {
    failed(std::runtime_error("something was thrown that is no std::exception"));
  }
}

}  // namespace

std::map<std::string, std::string> codeact_environment(
    const std::map<std::string, std::string>& requested) {
  std::map<std::string, std::string> environment = requested;
  std::string& path = environment["PYTHONPATH"];
  path = path.empty() ? std::string(kPythonSupportDirectory)
                      : fmt::format("{}:{}", kPythonSupportDirectory, path);
  environment.try_emplace("PYTHONUNBUFFERED", "1");
  environment.try_emplace("PYTHONNOUSERSITE", "1");
  environment.try_emplace("PYTHONDONTWRITEBYTECODE", "1");
  return environment;
}

ExpectedProgram codeact_expected_program(std::string_view image,
                                         const std::map<std::string, std::string>& requested) {
  return {.interpreter = std::string(interpreter_of(std::string(image))),
          .path = std::string(kProgramPath),
          .environment = codeact_environment(requested)};
}

CodeactRun run_codeact(const CodeactWiring& wiring, const SandboxKey& key,
                       const CodeactRequest& request, const CallControl& control) {
  const Stopwatch total;
  check_key(key);
  codeact::check_wiring(wiring, request);
  if (!request.outputs.empty()) {
    codeact::check_output_names(request.outputs, wiring.spec.files_out, wiring.outputs,
                                *wiring.output_sink);
  }
  Stopwatch watch;
  const std::vector<SharedFile> files = codeact::read_shared_files(wiring, request, control);

  CodeactRun run;
  run.capture_bytes = wiring.capture_bytes;
  run.timings.stage = watch.lap();
  Begun begun = Beginning(wiring, key, request, files, control).begin(run, watch);
  run.result = wait_for(*begun.process, control, run);
  begun.process.reset();
  if (begun.host_tools) {
    // Before anything is collected: the program is over, and so is what it may ask.
    begun.host_tools->close();
    run.host_tool_calls = begun.host_tools->counters().dispatched;
  }
  // What it still had open ends with it.
  run.egress = begun.call.call().end_egress();
  run.timings.run = watch.lap();
  codeact::append_outcome_notes(run, wiring.spec, request.timeout);
  collect(wiring, request, begun.call, control, run);
  run.timings.collect = watch.lap();
  if (wiring.ends_sandbox) {
    run.sandbox_ended = begun.call.close_with_sandbox();
  } else {
    begun.call.close();
  }
  run.timings.total = total.elapsed();
  return run;
}

}  // namespace casemate
