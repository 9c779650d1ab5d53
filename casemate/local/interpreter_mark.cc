#include "casemate/local/interpreter_mark.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <exception>
#include <vector>

#include "casemate/images/reference.h"
#include "casemate/sys/beneath.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::local {
namespace {

// As programs have it when nobody says otherwise (guest/agent/program_image.cc).
constexpr std::string_view kBasePath = "/usr/local/bin:/usr/bin:/bin:/casemate/bin";

// The files that `program` may mean, by their paths in the sandbox.
std::vector<std::string> candidates_of(const ExpectedProgram& program) {
  if (program.interpreter.find('/') != std::string::npos) return {program.interpreter};
  const auto own = program.environment.find("PATH");
  std::string_view rest = kBasePath;
  if (own != program.environment.end()) rest = own->second;
  std::vector<std::string> found;
  while (true) {
    const std::size_t colon = rest.find(':');
    found.push_back(fmt::format("{}/{}", rest.substr(0, colon), program.interpreter));
    if (colon == rest.npos) return found;
    rest.remove_prefix(colon + 1);
  }
}

// Links lead where they do for a program whose root that is.
sys::UniqueFd open_in_root(int root, const std::string& path) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return sys::UniqueFd(
      static_cast<int>(syscall(SYS_openat2, root, path.c_str(), &how, sizeof how)));
}

}  // namespace

std::string interpreter_mark(std::string_view image, const ExpectedProgram& program) noexcept try {
  const images::ImageReference reference = images::parse_image_reference(image);
  if (reference.form != ImageForm::host && reference.form != ImageForm::dir) return {};
  const sys::UniqueFd root =
      sys::open_path(reference.form == ImageForm::dir ? reference.path : "/", O_PATH | O_DIRECTORY);
  std::string mark;
  for (const std::string& path : candidates_of(program)) {
    const sys::UniqueFd file = open_in_root(root.get(), path);
    if (!file) continue;
    const struct stat status = sys::status_of(file.get());
    // The time of the inode too: what is written in its place may keep size and time of contents.
    mark += fmt::format("{}:{}:{}:{}.{}:{}.{} ", status.st_dev, status.st_ino, status.st_size,
                        status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                        status.st_ctim.tv_nsec);
  }
  return mark;
} catch (const std::exception&) {
  return {};
}

}  // namespace casemate::local
