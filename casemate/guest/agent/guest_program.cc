#include "casemate/guest/agent/guest_program.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "casemate/sys/error.h"
#include "casemate/sys/file.h"

extern "C" const char casemate_embedded_guest_program_bytes_0[];
extern "C" const char casemate_embedded_guest_program_bytes_0_end[];
// Of the bytes, from the build: reading a megabyte for it would be a tenth of a start.
extern const char casemate_guest_program_digest[];

namespace casemate::guest {
namespace {

// MFD_EXEC, of Linux 6.3; the headers here may be older.
constexpr unsigned kRunnable = 0x0010;

}  // namespace

std::span<const char> guest_program() {
  return {casemate_embedded_guest_program_bytes_0, casemate_embedded_guest_program_bytes_0_end};
}

const std::string& guest_build_id() {
  static const std::string id = casemate_guest_program_digest;
  return id;
}

sys::UniqueFd make_guest_program_file() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // Where nobody says so the machine may choose (vm.memfd_noexec) that it cannot be run.
  sys::UniqueFd file(memfd_create("casemate-guest", kFlags | kRunnable));
  if (!file && errno == EINVAL) file.reset(memfd_create("casemate-guest", kFlags));
  if (!file) sys::throw_errno("making a memory file");
  const std::span<const char> whole = guest_program();
  // Found out by trying, it would be a signal that ends the application.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < whole.size()) {
    sys::throw_error(EFBIG, "filling a memory file");
  }
  sys::write_all(file.get(), whole, "filling a memory file");
  constexpr int kAll = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
  if (fcntl(file.get(), F_ADD_SEALS, kAll) < 0) sys::throw_errno("sealing a memory file");
  return file;
}

}  // namespace casemate::guest
