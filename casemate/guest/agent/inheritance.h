#pragma once

namespace casemate::guest {

// Gives the calling process what every sandbox begins with, whatever the application that started
// it runs under: resource limits, execution domain, scheduling policy. A sandbox may be shared by
// processes that differ in these, and a limit that nobody asked for would bite without a name.
// Where a hard limit may not be raised, the limit comes as near as that lets it. Niceness and the
// processors that may be used stay what they are. In the keeper, before the first clone.
void drop_inherited_bounds() noexcept;

}  // namespace casemate::guest
