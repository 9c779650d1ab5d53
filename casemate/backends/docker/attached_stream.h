#pragma once

// What an attached exec says and hears, as a stream of bytes with a descriptor.

#include <memory>
#include <string>

#include "casemate/base/log.h"
#include "casemate/guest/stream/stream_end.h"
#include "casemate/sys/owner_process.h"

namespace casemate::docker {

// One connection to an engine after its answer was that it is a stream from now on: what is written
// goes to the exec's standard input, its standard output is what is read, its standard error goes
// to the log. A thread of its own, with all signals blocked, carries it, since neither TLS nor the
// engine's framing of outputs has a descriptor; no more than 64 KiB are on their way in it. Ends
// with either side.
//
// In a forked child of the host it does nothing.
class AttachedStream {
 public:
  class Carrier {
   public:
    virtual ~Carrier() = default;
    // Until the stream is over, in the thread.
    virtual void carry() noexcept = 0;
    // Ends it after a moment in which what was written still goes out. From another thread.
    virtual void finish() noexcept = 0;
  };

  AttachedStream(guest::StreamEnd end, std::unique_ptr<Carrier> carrier);
  ~AttachedStream();
  AttachedStream(AttachedStream&&) noexcept;
  AttachedStream& operator=(AttachedStream&&) = delete;

  // This side's end; once.
  guest::StreamEnd take_end() { return std::move(end_); }

 private:
  struct Running;
  guest::StreamEnd end_;
  std::unique_ptr<Running> running_;
  sys::OwnerProcess owner_;
};

}  // namespace casemate::docker
