#pragma once

// The state directory of a sandbox as its keeper sees it: by an open descriptor, under whatever
// name a host, a dispose or a sweep has given it.

namespace casemate::guest {

// Whether it is where published ones are; true also where that cannot be told.
bool is_published(int directory) noexcept;

// Removes it with what a keeper and a host put there, and nothing else: where more is in it, it
// stays.
void remove_directory(int directory) noexcept;

}  // namespace casemate::guest
