// The texts of the router's refusals, as a person meets them. To write the file anew after a change
// that was meant: CASEMATE_UPDATE_GOLDEN=1 build/debug/test_programs/policy_test

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "casemate/policy/backends_test.h"
#include "casemate/policy/router.h"

namespace casemate {
namespace {

constexpr const char* kGolden = "casemate/policy/refusal_texts.golden";

class Texts {
 public:
  void add(std::string_view when, const std::function<void()>& action) {
    const std::optional<Refused> refused = refusal_of(action);
    text_ << "## " << when << "\n";
    if (refused) {
      text_ << refused->code << "\n" << refused->message << "\n-> " << refused->hint << "\n\n";
    } else {
      text_ << "(not refused)\n\n";
    }
  }

  // `spoil` changes a pair that fits.
  void add_match(
      std::string_view when,
      const std::function<void(RouterOptions&, BackendDeclarations&, SandboxSpec&)>& spoil) {
    RouterOptions options{.min_isolation = Isolation::container};
    BackendDeclarations declared = declared_as("linux", Isolation::container);
    SandboxSpec spec = plain_spec();
    spoil(options, declared, spec);
    const SandboxRouter router({backend_with(declared)}, options);
    add(when, [&] { router.ensure_can_serve(spec); });
  }

  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

void add_construction(Texts& texts) {
  const auto linux_backend = backend_at("linux", Isolation::container);
  texts.add("null backend", [] { SandboxRouter({nullptr}); });
  texts.add("unknown floor",
            [] { SandboxRouter({}, {.min_isolation = static_cast<Isolation>(9)}); });
  texts.add("unknown denied capability",
            [] { SandboxRouter({}, {.denied_capabilities = {static_cast<Capability>(77)}}); });
  texts.add("unknown denied identity",
            [] { SandboxRouter({}, {.denied_identities = {static_cast<Identity>(77)}}); });
  texts.add("selected and first that can serve", [&] {
    SandboxRouter({linux_backend},
                  {.selected = "linux", .selection = Selection::first_that_can_serve});
  });
  texts.add("selected is not registered", [&] {
    SandboxRouter({linux_backend, backend_at("docker", Isolation::container)},
                  {.selected = "dokcer"});
  });
  texts.add("unset isolation", [] { SandboxRouter({backend_at("mystery", std::nullopt)}); });
  texts.add("unknown isolation",
            [] { SandboxRouter({backend_at("mystery", static_cast<Isolation>(9))}); });
  texts.add("below the floor", [&] { SandboxRouter({linux_backend}); });
  texts.add("no backend to acquire from",
            [] { SandboxRouter({}).acquire(a_key(), plain_spec(), {}); });
}

void add_matching(Texts& texts) {
  using Options = RouterOptions;
  using Declared = BackendDeclarations;
  using Spec = SandboxSpec;
  texts.add_match("1 denied capability", [](Options& options, Declared&, Spec&) {
    options.denied_capabilities = {Capability::exec, Capability::snapshot};
  });
  texts.add_match("2 denied identity", [](Options& options, Declared&, Spec& spec) {
    options.denied_identities = {Identity::user};
    spec.identities = {Identity::app, Identity::user};
  });
  texts.add_match("3 below the spec's floor",
                  [](Options&, Declared&, Spec& spec) { spec.min_isolation = Isolation::microvm; });
  texts.add_match("3 the spec's floor is unknown", [](Options&, Declared&, Spec& spec) {
    spec.min_isolation = static_cast<Isolation>(9);
  });
  texts.add_match("4 missing capabilities", [](Options&, Declared&, Spec& spec) {
    spec.requires_capabilities = {Capability::exec, Capability::files_list, Capability::snapshot};
  });
  texts.add_match("5 OS family", [](Options&, Declared&, Spec& spec) {
    spec.requires_os_family = OsFamily::windows;
  });
  texts.add_match("6 malformed limits", [](Options&, Declared& declared, Spec&) {
    declared.limits.files_in.max_files = 0;
    declared.limits.files_out.max_total_bytes = 0;
  });
  texts.add_match("6 files in", [](Options&, Declared&, Spec& spec) {
    spec.files_in.max_bytes_per_file = 16 * kMiB;
    spec.files_in.max_files = 65;
  });
  texts.add_match("6 files out", [](Options&, Declared& declared, Spec& spec) {
    spec.requires_capabilities.insert(Capability::files_out);
    declared.limits.files_out.max_total_bytes = 128 * kMiB;
    spec.files_out.max_total_bytes = 343'932'928;
  });
  texts.add_match("7 egress",
                  [](Options&, Declared&, Spec& spec) { spec.egress = Egress::unrestricted; });
  texts.add_match("7 egress of a backend that enforces none",
                  [](Options&, Declared& declared, Spec&) { declared.egress_modes = {}; });
  texts.add_match("8 image",
                  [](Options&, Declared&, Spec& spec) { spec.image = "oci:/images/py"; });
  texts.add_match("9 stated bounds", [](Options&, Declared& declared, Spec& spec) {
    declared.enforceable_limits = {Limit::cpu};
    declared.cpu_seconds_enforceable = false;
    spec.resources.memory_bytes = stated(64 * kMiB);
    spec.resources.cpu_seconds = stated(10);
  });
  texts.add_match("9 stated bounds, and why not here",
                  [](Options&, Declared& declared, Spec& spec) {
                    declared.enforceable_limits = {Limit::disk};
                    declared.why_not_enforceable = {{Limit::memory, "no groups here"},
                                                    {Limit::cpu, "no groups here"}};
                    spec.resources.memory_bytes = stated(64 * kMiB);
                    spec.resources.cpu_millis = stated(500);
                  });
  texts.add_match("hostile names stay on one line", [](Options&, Declared& declared, Spec& spec) {
    declared.name = "li\nnux\x1b[31m";
    spec.kind =
        "co\xff"
        "de";
    spec.egress = Egress::unrestricted;
  });
}

void add_choice(Texts& texts) {
  const RouterOptions first{.min_isolation = Isolation::container,
                            .selection = Selection::first_that_can_serve};
  const auto weak = backend_at("in-process", Isolation::process);
  const auto absent = backend_with(declared_as("docker", Isolation::container),
                                   unavailable("its daemon does not answer"));
  texts.add("none meets the floor",
            [&] { SandboxRouter({weak, backend_at("wasm", Isolation::runtime)}, first); });
  texts.add("each for its own reason",
            [&] { SandboxRouter({weak, absent}, first).ensure_can_serve(plain_spec()); });
  texts.add("the only one is not available",
            [&] { SandboxRouter({absent}, first).ensure_can_serve(plain_spec()); });
}

TEST(RefusalTexts, NameBothSidesAndTheFix) {
  Texts texts;
  add_construction(texts);
  add_matching(texts);
  add_choice(texts);
  if (std::getenv("CASEMATE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(kGolden) << texts.text();
  }
  std::ostringstream golden;
  golden << std::ifstream(kGolden).rdbuf();
  EXPECT_EQ(texts.text(), golden.str());
}

}  // namespace
}  // namespace casemate
