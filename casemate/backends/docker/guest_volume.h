#pragma once

// How our guest program gets into containers: once for each engine and build, by the archive call,
// into a volume that containers mount read-only. An archive for every container would make a start
// half as slow again as the engine's own.

#include <string>

#include "casemate/backends/docker/engine.h"

namespace casemate::docker {

inline constexpr std::string_view kGuestLabel = "casemate.guest";
// Where containers have it, and what they start. The latter is the last of what is unpacked: where
// it is, everything is.
inline constexpr std::string_view kGuestDirectory = "/casemate";
inline constexpr std::string_view kGuestEntry = "/casemate/guest";

// The name of this build's volume.
std::string guest_volume();

// The archive: program, support files, and the places where a container mounts what is its own.
std::string guest_archive();

// Behind the name of the container that the helper is for.
inline constexpr char kHelperSuffix[] = "-fill";

// Fills the volume by a container that is never started, of that name, made of `image` and carrying
// `labels`, and removes the volumes of other builds that nobody uses. What has the name was left by
// somebody who was killed. May be done under several names at once.
void fill_guest_volume(Engine& engine, const std::string& image, const std::string& helper,
                       const std::map<std::string, std::string>& labels,
                       const CallControl& control);

}  // namespace casemate::docker
