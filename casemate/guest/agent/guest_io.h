#pragma once

// Small things that all guest roles need.

#include <optional>

#include "casemate/guest/frame.h"
#include "casemate/guest/protocol.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::guest {

// Waits for the next frame; absent when the host closed. Throws like `FrameReader::next`.
std::optional<Frame> await_frame(int connection, FrameReader& reader);

// Waits until everything queued is sent, or until at most `most_pending` bytes are not. Returns
// false when the host is gone.
bool await_flush(int connection, FrameWriter& writer, std::size_t most_pending = 0) noexcept;

// Hides this process's memory and descriptors from everything without privilege, and ties its life
// to the process behind the pidfd `parent_alive`. Repeat after a change of user, which undoes both.
void harden_process(int parent_alive) noexcept;

}  // namespace casemate::guest
