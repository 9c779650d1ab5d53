#include "casemate/local/image_choice.h"

#include <fmt/format.h>

#include <utility>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/images/reference.h"
#include "casemate/sys/beneath.h"

namespace casemate::local {
namespace {

// Ours: what an image says of them is true of its own users.
constexpr const char* kOwnVariables[] = {"HOME", "USER", "LOGNAME", "TMPDIR"};

// As at the end of the path that programs have without an image's (guest/agent/program_image.cc).
constexpr char kOwnPrograms[] = ":/casemate/bin";

// Directories of an image are shown read-only, so that nothing can be made in one.
void check_work_dir(const std::string& work_dir, int root) {
  const std::size_t slash = work_dir.find('/', 1);
  if (slash == work_dir.npos) return;
  const std::string top = work_dir.substr(1, slash - 1);
  if (!sys::entry_in(root, top)) return;
  throw InvalidArgument(fmt::format("work_dir \"{}\" is refused: the image has a /{} of its own",
                                    escape_for_display(work_dir), escape_for_display(top)),
                        "use the default, /workspace");
}

}  // namespace

ImageChoice choose_image(const SandboxSpec& spec, images::ImageStore& store,
                         const std::string& build, const CallControl& control) {
  ImageChoice choice;
  choice.name = spec.image_id.value_or(spec.image.value_or("host"));
  SandboxSpec meant = spec;
  meant.image_id.reset();
  const images::ImageReference reference = images::parse_image_reference(choice.name);
  if (reference.form == ImageForm::host) {
    meant.image.reset();
  } else {
    choice.held = store.hold(reference, control);
    check_work_dir(spec.work_dir, choice.held->root.get());
    meant.image = choice.held->identity;
    choice.environment = choice.held->environment;
    for (const char* name : kOwnVariables) choice.environment.erase(name);
    const auto path = choice.environment.find("PATH");
    if (path != choice.environment.end()) path->second += kOwnPrograms;
  }
  choice.fingerprint = spec_fingerprint(meant, build);
  return choice;
}

}  // namespace casemate::local
