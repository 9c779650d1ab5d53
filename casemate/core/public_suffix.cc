#include "casemate/core/public_suffix.h"

#include <libpsl.h>

#include <stdexcept>

namespace casemate {

bool is_public_suffix(const std::string& name) {
  const psl_ctx_t* const list = psl_builtin();
  if (list == nullptr) throw std::logic_error("libpsl was built without the Public Suffix List");
  constexpr int kKnown = PSL_TYPE_ANY | PSL_TYPE_NO_STAR_RULE;
  if (psl_is_public_suffix2(list, name.c_str(), kKnown) != 0) return true;
  // A rule `*.name` makes suffixes of all that stands below; the label is as good as any other.
  return psl_is_public_suffix2(list, ("any-label-at-all." + name).c_str(), kKnown) != 0;
}

}  // namespace casemate
