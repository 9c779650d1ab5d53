#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace casemate::microvm {

// A file of a guest's first file system.
struct InitramfsFile {
  // Relative, without "." and "..".
  std::string name;
  std::string content;
  // Permission bits.
  unsigned mode = 0644;
};

// The archive that a kernel unpacks as its first file system ("newc",
// Documentation/driver-api/early- userspace/buffer-format.rst of the kernel): directories as they
// are needed, everything root's, no times, so that the same files give the same bytes. Throws
// `std::length_error` for a file of 4 GiB or more.
std::string write_initramfs(const std::vector<InitramfsFile>& files);

// What machines start with: the guest program as the first process, and these module files in this
// order. Throws `std::system_error`.
std::string machine_initramfs(std::string_view guest_program,
                              const std::vector<std::string>& module_files);

}  // namespace casemate::microvm
