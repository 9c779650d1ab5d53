#include "casemate/images/registry.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <optional>
#include <system_error>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/images/command.h"
#include "casemate/images/growth.h"
#include "casemate/sys/beneath.h"
#include "casemate/sys/file.h"

namespace casemate::images {
namespace {

using sys::UniqueFd;

constexpr char kLogName[] = "skopeo.log";
constexpr std::size_t kShownLogBytes = 600;

std::string end_of(const std::string& log) {
  const std::size_t from = log.size() > kShownLogBytes ? log.size() - kShownLogBytes : 0;
  std::string_view text = std::string_view(log).substr(from);
  while (text.ends_with('\n')) text.remove_suffix(1);
  return escape_for_display(text, 2 * kShownLogBytes);
}

}  // namespace

void fetch_from_registry(const std::string& skopeo, const ImageReference& reference, int directory,
                         const std::string& name, const ProgressSink& progress,
                         const CallControl& control) {
  ProgressStep step(progress, "fetching " + reference.text);
  const UniqueFd log =
      sys::open_at(directory, kLogName, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW, 0600);
  std::optional<Growth> growth;
  if (progress) growth.emplace(directory);
  int status = 0;
  try {
    status = run_command(
        {.program = skopeo,
         .words = {"skopeo", "copy", "--quiet", "--override-os", "linux",
                   "docker://" + reference.text, fmt::format("oci:{}:{}", name, kDownloadTag)},
         .directory = directory,
         .log = log.get(),
         .events = growth ? growth->descriptor() : -1,
         .look = [&] { step.reach(growth->look()); },
         .what = "an image was fetched",
         .late_hint = "import it first: `casemate image import`"},
        control);
  } catch (const std::system_error& error) {
    if (error.code().value() != ENOENT) throw;
    throw SandboxImageNotSupported(
        fmt::format("an image of a registry is fetched by skopeo, and there is no '{}' here",
                    escape_for_display(skopeo)),
        "install it (Debian, as root: apt-get update && apt-get install -y skopeo), or import what "
        "another machine wrote, as "
        "oci:PATH or docker-archive:PATH");
  }
  if (status != 0) {
    const std::string said = sys::read_file_if_there(directory, kLogName, 1 << 20).value_or("");
    throw SandboxUnavailable(fmt::format("skopeo could not fetch '{}' (exit {}): {}",
                                         reference.text, status, end_of(said)),
                             "see `man skopeo-copy`; `skopeo login` for a private registry");
  }
  if (growth) step.reach(growth->look());
  step.end();
}

}  // namespace casemate::images
