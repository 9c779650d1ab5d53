// outputs.json of a hostile program, as the host reads it. The first byte is the size that the
// guest says the list has, against the size it really has.

#include "casemate/kinds/codeact/manifest.h"

#include <algorithm>
#include <string>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/tool/refusals.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

class OneFile final : public GuestFiles {
 public:
  OneFile(SandboxEntry entry, std::string content)
      : entry_(std::move(entry)), content_(std::move(content)) {}

  std::optional<SandboxEntry> stat_file(std::string_view, std::string_view,
                                        const CallControl&) override {
    return entry_;
  }
  std::string read_file(std::string_view, std::string_view, std::uint64_t,
                        const CallControl&) override {
    return content_;
  }
  void write_file(std::string_view, std::span<const char>, std::string_view,
                  const CallControl&) override {}
  void remove(std::string_view, std::string_view, Recursive, const CallControl&) override {}
  std::vector<SandboxEntry> list_dir(std::string_view, std::string_view,
                                     const CallControl&) override {
    return {};
  }

 private:
  SandboxEntry entry_;
  std::string content_;
};

}  // namespace

void fuzz_manifest(std::string_view bytes) {
  Input input(bytes);
  const unsigned claim = input.byte();
  const std::string content(input.rest());
  SandboxEntry entry{"outputs.json", static_cast<EntryKind>(claim >> 6), content.size()};
  if ((claim & 1) != 0) entry.size_bytes = content.size() + claim;
  if ((claim & 2) != 0) entry.size_bytes = content.size() / 2;
  if ((claim & 4) != 0) entry.size_bytes.reset();
  OneFile files(entry, content);
  constexpr TransferLimits kLimits{
      .max_bytes_per_file = 32 * kKiB, .max_total_bytes = 48 * kKiB, .max_files = 8};
  try {
    const codeact::Manifest manifest =
        codeact::read_manifest(files, "/workspace/0/work", kLimits, {});
    require(manifest.written && entry.kind == EntryKind::file && entry.size_bytes.has_value(),
            "only a regular file of known size is a list");
    require(manifest.bytes == content.size() && manifest.bytes <= kLimits.max_bytes_per_file,
            "a list is within its cap");
    require(manifest.bytes <= *entry.size_bytes, "a list is no longer than was said before");
    require(std::ranges::all_of(manifest.names, is_valid_utf8), "names are text");
    const TransferLimits left = manifest.budget(kLimits);
    require(left.within(kLimits) && left.max_files == kLimits.max_files - 1,
            "a list takes of the budget and adds nothing");
  } catch (const SandboxOutputError& refusal) {
    require(is_valid_utf8(refusal.message()), "a refusal is text");
  } catch (const ModelFacingRefusal& refusal) {
    const std::string_view text = refusal.what();
    require(is_valid_utf8(text) && text.size() < 1024, "a refusal is text, and bounded");
  }
}

}  // namespace casemate::fuzz
