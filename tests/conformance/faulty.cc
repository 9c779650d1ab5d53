#include "tests/conformance/faulty.h"

#include <stdexcept>
#include <utility>

namespace casemate::conformance_tests {
namespace {

class FaultyProcess final : public Process {
 public:
  explicit FaultyProcess(std::function<ExecResult(const CallControl&)> run)
      : run_(std::move(run)) {}
  ExecResult wait(const CallControl& control) override { return run_(control); }
  void write_stdin(std::span<const char>, const CallControl&) override {
    throw std::logic_error("no probe writes to standard input");
  }
  void close_stdin() override {}
  void signal(int) override {}

 private:
  std::function<ExecResult(const CallControl&)> run_;
};

class ChangedProcess final : public Process {
 public:
  ChangedProcess(std::unique_ptr<Process> good, std::shared_ptr<const Faults> faults)
      : good_(std::move(good)), faults_(std::move(faults)) {}
  ExecResult wait(const CallControl& control) override {
    ExecResult result = good_->wait(control);
    if (faults_->result) faults_->result(result);
    return result;
  }
  void write_stdin(std::span<const char> bytes, const CallControl& control) override {
    good_->write_stdin(bytes, control);
  }
  void close_stdin() override { good_->close_stdin(); }
  void signal(int number) override { good_->signal(number); }

 private:
  std::unique_ptr<Process> good_;
  std::shared_ptr<const Faults> faults_;
};

class FaultyCall final : public Call {
 public:
  FaultyCall(std::unique_ptr<Call> good, std::shared_ptr<const Faults> faults)
      : good_(std::move(good)), faults_(std::move(faults)) {}

  Call& good() { return *good_; }

  const std::string& id() const override { return good_->id(); }
  const std::string& directory() const override { return good_->directory(); }
  std::string host_tool_address() const override { return good_->host_tool_address(); }
  bool close() noexcept override { return good_->close(); }

  std::unique_ptr<Process> start(const ExecRequest& request, const CallControl& control) override {
    if (faults_->start) return faults_->start(*good_, request, control);
    if (!faults_->exec || request.lifetime == Lifetime::sandbox) {
      ExecRequest changed = request;
      if (faults_->request) faults_->request(changed);
      return std::make_unique<ChangedProcess>(good_->start(changed, control), faults_);
    }
    return std::make_unique<FaultyProcess>([this, request](const CallControl& waiting) {
      return faults_->exec(*good_, request, waiting);
    });
  }
  void write_file(std::string_view path, std::span<const char> content, std::string_view directory,
                  const CallControl& control) override {
    if (!faults_->write_file) return good_->write_file(path, content, directory, control);
    faults_->write_file(*good_, std::string(path), {content.data(), content.size()},
                        std::string(directory));
  }
  std::optional<SandboxEntry> stat_file(std::string_view path, std::string_view directory,
                                        const CallControl& control) override {
    if (!faults_->stat_file) return good_->stat_file(path, directory, control);
    return faults_->stat_file(*good_, std::string(path), std::string(directory));
  }
  std::string read_file(std::string_view path, std::string_view directory, std::uint64_t max_bytes,
                        const CallControl& control) override {
    if (!faults_->read_file) return good_->read_file(path, directory, max_bytes, control);
    return faults_->read_file(*good_, std::string(path), std::string(directory));
  }
  void remove(std::string_view path, std::string_view directory, Recursive recursive,
              const CallControl& control) override {
    if (!faults_->remove) return good_->remove(path, directory, recursive, control);
    faults_->remove(*good_, std::string(path), std::string(directory), recursive);
  }
  std::vector<SandboxEntry> list_dir(std::string_view path, std::string_view directory,
                                     const CallControl& control) override {
    if (!faults_->list_dir) return good_->list_dir(path, directory, control);
    return faults_->list_dir(*good_, std::string(path), std::string(directory));
  }

 private:
  std::unique_ptr<Call> good_;
  std::shared_ptr<const Faults> faults_;
};

class FaultySandbox final : public Sandbox {
 public:
  FaultySandbox(std::shared_ptr<Sandbox> good, std::shared_ptr<const Faults> faults)
      : good_(std::move(good)), faults_(std::move(faults)) {}
  SandboxInfo info() const override { return good_->info(); }
  std::optional<int> first_process() const override { return good_->first_process(); }
  std::unique_ptr<Call> open_call(const CallProfile& profile, const CallControl& control) override {
    return std::make_unique<FaultyCall>(faults_->open_call
                                            ? faults_->open_call(*good_, profile, control)
                                            : good_->open_call(profile, control),
                                        faults_);
  }

 private:
  std::shared_ptr<Sandbox> good_;
  std::shared_ptr<const Faults> faults_;
};

class FaultyBackend final : public SandboxBackend {
 public:
  FaultyBackend(std::shared_ptr<SandboxBackend> good, Faults faults)
      : good_(std::move(good)), faults_(std::make_shared<const Faults>(std::move(faults))) {}
  BackendDeclarations declarations() const override { return good_->declarations(); }
  std::shared_ptr<Sandbox> acquire(const SandboxKey& key, const SandboxSpec& spec,
                                   const CallControl& control) override {
    SandboxSpec changed = spec;
    if (faults_->spec) faults_->spec(changed);
    return std::make_shared<FaultySandbox>(good_->acquire(key, changed, control), faults_);
  }
  int dispose(const SandboxKey& key) noexcept override { return good_->dispose(key); }
  int dispose_scope(std::string_view scope, std::string_view thread_id) noexcept override {
    if (faults_->dispose_scope) return faults_->dispose_scope(*good_, scope, thread_id);
    return good_->dispose_scope(scope, thread_id);
  }
  bool dispose_id(std::string_view id) noexcept override { return good_->dispose_id(id); }
  SandboxSnapshot snapshot(const SandboxKey& key, std::string_view kind,
                           const CallControl& control) override {
    return faults_->snapshot ? faults_->snapshot(*good_, key, kind, control)
                             : good_->snapshot(key, kind, control);
  }
  std::shared_ptr<Sandbox> restore(const SandboxKey& key, const SandboxSpec& spec,
                                   std::string_view id, const CallControl& control) override {
    return std::make_shared<FaultySandbox>(faults_->restore
                                               ? faults_->restore(*good_, key, spec, id, control)
                                               : good_->restore(key, spec, id, control),
                                           faults_);
  }
  bool dispose_snapshot(std::string_view id) noexcept override {
    return faults_->dispose_snapshot ? faults_->dispose_snapshot(*good_, id)
                                     : good_->dispose_snapshot(id);
  }

 private:
  std::shared_ptr<SandboxBackend> good_;
  std::shared_ptr<const Faults> faults_;
};

Call& good_of(Call& call) {
  auto* const faulty = dynamic_cast<FaultyCall*>(&call);
  return faulty != nullptr ? faulty->good() : call;
}

}  // namespace

std::shared_ptr<SandboxBackend> faulty_backend(std::shared_ptr<SandboxBackend> good,
                                               Faults faults) {
  return std::make_shared<FaultyBackend>(std::move(good), std::move(faults));
}

void FaultySubject::plant(Call& call, std::span<const conformance::Planted> all,
                          const CallControl& control) {
  Subject::plant(good_of(call), all, control);
}

std::vector<std::optional<std::string>> FaultySubject::look(Call& call,
                                                            std::span<const std::string> paths,
                                                            const CallControl& control) {
  return Subject::look(good_of(call), paths, control);
}

}  // namespace casemate::conformance_tests
