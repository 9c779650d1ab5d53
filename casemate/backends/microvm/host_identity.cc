#include "casemate/backends/microvm/host_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>
#include <system_error>

#include "casemate/base/digest.h"
#include "casemate/sys/file.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::microvm {
namespace {

// Of one processor; the rest of what the file says is its number or moves (MHz).
constexpr auto kProcessorKeys = std::to_array<std::string_view>(
    {"vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags"});
constexpr std::size_t kMaxMachineIdBytes = 4096;
// Of an ELF program: its head and its notes, the build id among them. Of a script, most likely all.
constexpr std::size_t kProgramBytes = 4096;

// Up to the empty line behind it: a machine may have hundreds of processors.
std::string first_processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();) text += line + "\n";
  return text;
}

}  // namespace

HostFacts look_at_host_identity() {
  HostFacts facts;
  facts.processor = first_processor();
  utsname names{};
  if (uname(&names) == 0) facts.kernel_release = names.release;
  try {
    facts.machine_id = sys::read_file_if_there(AT_FDCWD, "/etc/machine-id", kMaxMachineIdBytes)
                           .value_or(std::string());
  } catch (const std::system_error&) {
    // As where there is none.
  }
  return facts;
}

std::string host_identity(const HostFacts& facts) {
  std::string identity;
  std::istringstream lines(facts.processor);
  for (std::string line; std::getline(lines, line);) {
    const std::string_view key = std::string_view(line).substr(0, line.find_first_of("\t:"));
    for (const std::string_view wanted : kProcessorKeys) {
      if (key == wanted) identity += line + "\n";
    }
  }
  return identity + facts.kernel_release + "\n" + facts.machine_id;
}

std::string program_identity(const std::string& path) {
  const sys::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status{};
  if (!file || fstat(file.get(), &status) < 0) return "";
  std::string head(kProgramBytes, '\0');
  const ssize_t got = pread(file.get(), head.data(), head.size(), 0);
  if (got < 0) return "";
  head.resize(static_cast<std::size_t>(got));
  return sha256_hex(head + std::to_string(status.st_size));
}

}  // namespace casemate::microvm
