#include <fmt/format.h>

#include <system_error>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/beneath.h"
#include "casemate/transfer/directory_root.h"
#include "casemate/transfer/file_store.h"
#include "casemate/transfer/sink.h"

namespace casemate {

void refuse_overlap(const OutputSink& sink, const FileStore& store) {
  const auto* files = dynamic_cast<const FileSystemSink*>(&sink);
  const auto* shared = dynamic_cast<const DirectoryFileStore*>(&store);
  if (files == nullptr || shared == nullptr) {
    return;
  }
  const DirectoryRoot& out = *files->root_;
  const DirectoryRoot& in = *shared->root_;
  bool overlap = false;
  try {
    overlap = sys::is_within(out.held.get(), in.held.get()) ||
              sys::is_within(in.held.get(), out.held.get());
  } catch (const std::system_error& error) {
    throw InvalidArgument(
        fmt::format("output directory \"{}\" and shared directory \"{}\" cannot be compared: {}",
                    escape_for_display(out.path.native()), escape_for_display(in.path.native()),
                    error.code().message()));
  }
  if (overlap) {
    throw InvalidArgument(
        fmt::format("output directory \"{}\" and shared directory \"{}\" are the same or lie in "
                    "one another, so that a program's output would be shared with later programs "
                    "as the host's own file",
                    escape_for_display(out.path.native()), escape_for_display(in.path.native())),
        "use two directories beside each other");
  }
}

void refuse_overlap(const OutputSink& sink, const FileStore& store, UnsafeSharedStore accepted) {
  (void)sink;
  (void)store;
  (void)accepted;
}

}  // namespace casemate
