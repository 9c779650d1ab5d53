#pragma once

namespace casemate {

// For whoever has no descriptor left: each sandbox, and each call, costs a host a few.
inline constexpr char kDescriptorsHint[] =
    "dispose conversations that are over, or raise the limit on open files (ulimit -n)";

}  // namespace casemate
