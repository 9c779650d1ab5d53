#include "casemate/sys/error.h"

#include <cerrno>

namespace casemate::sys {

void throw_errno(const std::string& what) { throw_error(errno, what); }

void throw_error(int error_number, const std::string& what) {
  throw std::system_error(error_number, std::generic_category(), what);
}

}  // namespace casemate::sys
