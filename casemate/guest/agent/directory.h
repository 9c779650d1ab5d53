#pragma once

#include <string>

#include "casemate/guest/protocol.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// A file operation that failed; answered to the host as it is.
struct OperationFailed {
  Failure failure;
};

// Throws `OperationFailed` for an errno.
[[noreturn]] void fail_with(int error_number);
// Throws `OperationFailed`: a link, or the directory itself.
[[noreturn]] void refuse_path();

// Opens what lies below `directory` ("" is itself), no component of it a link (a link is
// `refuse_path`; anything else fails with its errno).
sys::UniqueFd open_below(int directory, const std::string& relative, int flags);

// An O_PATH descriptor of an absolute, normalised directory, no component of it a link (a link is
// `refuse_path`; anything else fails with its errno).
sys::UniqueFd open_directory(const std::string& absolute);

enum class MissingParents { fail, create };

// Where an operation on `file` happens: its parent directory (O_PATH) and its last component.
struct ParentAndLeaf {
  sys::UniqueFd parent;
  std::string leaf;
};

// Walks to the parent of `file.path` below `file.directory`, following no link. With `create`,
// missing directories (of `file.directory` too) are made 0755. `file.path` is not empty.
ParentAndLeaf open_parent(const FilePath& file, MissingParents missing);

}  // namespace casemate::guest
