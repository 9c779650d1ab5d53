#include "bench/engine.h"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <utility>

#include "casemate/base/digest.h"
#include "casemate/core/sandbox.h"
#include "casemate/core/spec.h"

namespace casemate::bench {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

class Engine {
 public:
  Engine(std::shared_ptr<SandboxBackend> backend, std::string image)
      : backend_(std::move(backend)) {
    spec_.kind = "bench";
    spec_.image = std::move(image);
  }
  ~Engine() {
    if (!std::exchange(warm_, nullptr)) return;
    backend_->dispose(key("warm"));
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // As `docker run --rm` does: begun, and gone at the end.
  double cold(const Argv& program) {
    const SandboxKey own = key(random_hex(4));
    const auto start = Clock::now();
    run(*backend_->acquire(own, spec_, {}), program);
    backend_->dispose(own);
    return since(start);
  }
  double warm(const Argv& program) {
    if (!warm_) warm_ = backend_->acquire(key("warm"), spec_, {});
    const auto start = Clock::now();
    run(*warm_, program);
    return since(start);
  }

 private:
  SandboxKey key(const std::string& agent) const { return {"casemate bench", thread_, agent}; }
  static void run(Sandbox& sandbox, const Argv& program) {
    ExecRequest request;
    request.command = program;
    const ExecResult result = sandbox.exec(request, {});
    if (result.exit_code != 0) throw std::runtime_error("a program failed: " + result.stderr);
  }

  std::shared_ptr<SandboxBackend> backend_;
  SandboxSpec spec_;
  std::string thread_ = random_hex(8);
  std::shared_ptr<Sandbox> warm_;
};

std::string why_not(SandboxBackend& backend, const std::string& image, std::string_view how) {
  if (image.empty()) return fmt::format("no image is named ({})", how);
  const BackendProbe probe = backend.probe();
  return probe.available ? "" : probe.reason;
}

const Argv kNothing{{"/bin/true"}};

}  // namespace

std::vector<Subject> engine_subjects(std::shared_ptr<SandboxBackend> backend, std::string image) {
  const std::string skipped =
      why_not(*backend, image, "CASEMATE_BENCH_IMAGE, or image in [backends.docker]");
  const auto engine = std::make_shared<Engine>(std::move(backend), std::move(image));
  const Argv print{{"python3", "-c", "print(1)"}};
  const auto subject = [&](std::string work, std::function<double()> once, std::vector<Bar> bars) {
    return Subject{.work = std::move(work),
                   .name = "casemate docker",
                   .once = std::move(once),
                   .bars = std::move(bars),
                   .skipped = skipped};
  };
  return {subject("cold_true", [=] { return engine->cold(kNothing); },
                  {{.of = "docker", .factor = 1.3}}),
          subject("warm_true", [=] { return engine->warm(kNothing); },
                  {{.of = "docker exec", .factor = 0.1}}),
          subject("warm_print", [=] { return engine->warm(print); },
                  {{.of = "docker exec", .factor = 1}})};
}

std::vector<Subject> machine_subjects(std::shared_ptr<SandboxBackend> backend, std::string image,
                                      bool emulated) {
  const std::string skipped = why_not(*backend, image, "CASEMATE_BENCH_MACHINE_IMAGE");
  const auto engine = std::make_shared<Engine>(std::move(backend), std::move(image));
  const auto subject = [&](std::string work, std::function<double()> once) {
    return Subject{.work = std::move(work),
                   .name = emulated ? "casemate microvm, emulated" : "casemate microvm",
                   .once = std::move(once),
                   .skipped = skipped};
  };
  return {subject("cold_true", [=] { return engine->cold(kNothing); }),
          subject("warm_true", [=] { return engine->warm(kNothing); })};
}

}  // namespace casemate::bench
