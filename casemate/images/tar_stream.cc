#include "casemate/images/tar_stream.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <locale.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/sys/error.h"

namespace casemate::images {
namespace {

constexpr std::size_t kBlockBytes = 128 * 1024;

struct FreeArchive {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
using Reader = std::unique_ptr<archive, FreeArchive>;

// Names in extended headers are UTF-8, and libarchive hands them out in the locale's encoding. This
// thread's alone is changed, for as long as a call into the library lasts.
class Utf8Locale {
 public:
  Utf8Locale() : locale_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)) {}
  ~Utf8Locale() {
    if (locale_ != nullptr) freelocale(locale_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

  class Use {
   public:
    explicit Use(const Utf8Locale& own)
        : before_(own.locale_ != nullptr ? uselocale(own.locale_) : nullptr) {}
    ~Use() {
      if (before_ != nullptr) uselocale(before_);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    locale_t before_;
  };

 private:
  locale_t locale_;
};

void check_control(const CallControl& control) {
  if (control.stop.stop_requested()) throw SandboxCancelled("cancelled while reading an image");
  if (control.deadline && std::chrono::steady_clock::now() >= *control.deadline) {
    throw SandboxTimeout("the deadline came while an image was read",
                         "import it first: `casemate image import`");
  }
}

[[noreturn]] void refuse(std::string_view why) {
  throw SandboxImageInvalid(fmt::format("the image's archive is refused: {}", why),
                            "export the image anew");
}

EntryKind kind_of(archive_entry* entry) {
  if (archive_entry_hardlink(entry) != nullptr) return EntryKind::hard_link;
  switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
      return EntryKind::file;
    case AE_IFDIR:
      return EntryKind::directory;
    case AE_IFLNK:
      return EntryKind::symbolic_link;
    default:
      return EntryKind::other;
  }
}

}  // namespace

bool is_compressed(int file) {
  std::array<unsigned char, 4> start{};
  const ssize_t got = pread(file, start.data(), start.size(), 0);
  if (got < 0) sys::throw_errno("reading an archive");
  const bool gzip = got >= 2 && start[0] == 0x1f && start[1] == 0x8b;
  const bool zstd =
      got == 4 && start[0] == 0x28 && start[1] == 0xb5 && start[2] == 0x2f && start[3] == 0xfd;
  return gzip || zstd;
}

class TarStream::Impl {
 public:
  Impl(int file, const TarBounds& bounds, const CallControl& control, Sums sums,
       std::function<void(std::uint64_t)> on_position)
      : file_(file),
        bounds_(bounds),
        control_(control),
        on_position_(std::move(on_position)),
        buffer_(kBlockBytes) {
    const Utf8Locale::Use use(locale_);
    tar_ = make_reader();
    check(tar_.get(), archive_read_support_format_tar(tar_.get()));
    check(tar_.get(), archive_read_support_format_empty(tar_.get()));
    if (sums == Sums::unwanted && !is_compressed(file)) {
      if (archive_read_open_fd(tar_.get(), file, kBlockBytes) != ARCHIVE_OK) fail(tar_.get());
      return;
    }
    // Two readers, one behind the other, so that what is between them is seen: the first takes the
    // compression away, the second reads the tar.
    plain_ = make_reader();
    check(plain_.get(), archive_read_support_filter_gzip(plain_.get()));
    check(plain_.get(), archive_read_support_filter_zstd(plain_.get()));
    check(plain_.get(), archive_read_support_format_raw(plain_.get()));
    check(plain_.get(), archive_read_support_format_empty(plain_.get()));
    if (archive_read_open(plain_.get(), this, nullptr, &Impl::read_file, nullptr) != ARCHIVE_OK) {
      fail(plain_.get());
    }
    archive_entry* whole = nullptr;
    const int opened = archive_read_next_header(plain_.get(), &whole);
    if (opened == ARCHIVE_EOF) {
      plain_ended_ = true;
    } else if (opened != ARCHIVE_OK) {
      fail(plain_.get());
    }
    if (archive_read_open(tar_.get(), this, nullptr, &Impl::read_plain, nullptr) != ARCHIVE_OK) {
      fail(tar_.get());
    }
  }

  std::optional<TarEntry> next() {
    const Utf8Locale::Use use(locale_);
    check_control(control_);
    archive_entry* found = nullptr;
    const int answer = archive_read_next_header(tar_.get(), &found);
    if (!plain_) tell_position();
    if (answer == ARCHIVE_EOF) return std::nullopt;
    if (answer != ARCHIVE_OK && answer != ARCHIVE_WARN) fail(tar_.get());
    // A name that does not fit its encoding comes changed, and might fit another entry's.
    if (answer == ARCHIVE_WARN && message(tar_.get()).find("can't be converted") != message_npos) {
      fail(tar_.get());
    }
    if (++entries_ > bounds_.max_entries) {
      refuse(fmt::format("it has more than {} entries", bounds_.max_entries));
    }
    const char* name = archive_entry_pathname(found);
    if (name == nullptr) refuse("an entry has no name that can be read");
    TarEntry entry;
    entry.name = name;
    entry.kind = kind_of(found);
    if (entry.kind == EntryKind::hard_link) entry.target = text(archive_entry_hardlink(found));
    if (entry.kind == EntryKind::symbolic_link) entry.target = text(archive_entry_symlink(found));
    const la_int64_t size = archive_entry_size(found);
    if (size < 0) refuse("an entry has a negative size");
    entry_size_ = static_cast<std::uint64_t>(size);
    if (entry_size_ > bounds_.max_bytes - stated_) {
      refuse(fmt::format("its entries have more than {} bytes, unpacked", bounds_.max_bytes));
    }
    stated_ += entry_size_;
    entry.size = entry.kind == EntryKind::file ? entry_size_ : 0;
    entry.executable = (archive_entry_perm(found) & 0100) != 0;
    entry.modified = archive_entry_mtime(found);
    const long nanoseconds = archive_entry_mtime_nsec(found);
    if (nanoseconds >= 0 && nanoseconds < 1000000000) entry.modified_nanoseconds = nanoseconds;
    return entry;
  }

  std::optional<Block> read() {
    check_control(control_);
    const void* bytes = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    const int answer = archive_read_data_block(tar_.get(), &bytes, &size, &offset);
    if (!plain_) tell_position();
    if (answer == ARCHIVE_EOF) return std::nullopt;
    if (answer != ARCHIVE_OK) fail(tar_.get());
    const auto at = static_cast<std::uint64_t>(offset);
    if (offset < 0 || at > entry_size_ || size > entry_size_ - at) {
      refuse("an entry has more data than it states");
    }
    return Block{.bytes = {static_cast<const char*>(bytes), size}, .offset = at};
  }

  TarSums finish() {
    while (pull() > 0) check_control(control_);
    if (failure_) std::rethrow_exception(failure_);
    // Behind the last compressed member something may stand that no member needs.
    while (read_some() > 0) check_control(control_);
    return {.bytes = file_bytes_,
            .unpacked_bytes = plain_bytes_,
            .entries = entries_,
            .digest = "sha256:" + file_sum_.finish_hex(),
            .unpacked_digest = "sha256:" + plain_sum_.finish_hex()};
  }

 private:
  static constexpr std::size_t message_npos = std::string_view::npos;

  static Reader make_reader() {
    Reader reader(archive_read_new());
    if (reader == nullptr) throw std::bad_alloc();
    return reader;
  }

  static std::string_view message(archive* reader) {
    const char* found = archive_error_string(reader);
    return found == nullptr ? std::string_view("it cannot be read") : std::string_view(found);
  }

  static std::string text(const char* found) {
    if (found == nullptr) refuse("a link leads to a name that cannot be read");
    return found;
  }

  void check(archive* reader, int answer) const {
    // ARCHIVE_WARN: the library was built without the compression and would start a program.
    if (answer != ARCHIVE_OK) fail(reader);
  }

  [[noreturn]] void fail(archive* reader) const {
    if (failure_) std::rethrow_exception(failure_);
    refuse(escape_for_display(message(reader)));
  }

  // Bytes of the file, seen and counted.
  std::size_t read_some() {
    while (true) {
      const ssize_t got = ::read(file_, buffer_.data(), buffer_.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) sys::throw_errno("reading an archive");
      const auto count = static_cast<std::size_t>(got);
      file_sum_.update({buffer_.data(), count});
      file_bytes_ += count;
      // No compression makes twice as much of anything. What it makes nothing of has a bound, too.
      if (file_bytes_ / 2 > std::max<std::uint64_t>(bounds_.max_bytes, kBlockBytes)) {
        refuse(fmt::format("its file has more than {} bytes", file_bytes_ - count));
      }
      if (on_position_) on_position_(file_bytes_);
      return count;
    }
  }

  // Of the file that the library reads by itself.
  void tell_position() const {
    if (!on_position_) return;
    const off_t position = lseek(file_, 0, SEEK_CUR);
    if (position > 0) on_position_(static_cast<std::uint64_t>(position));
  }

  // Exceptions do not pass through a library of C: they wait in `failure_`.
  template <typename Act>
  la_ssize_t contained(archive* reader, Act&& act) {
    try {
      check_control(control_);
      return act();
    } catch (...) {
      failure_ = std::current_exception();
      archive_set_error(reader, EIO, "stopped");
      return -1;
    }
  }

  static la_ssize_t read_file(archive* reader, void* self, const void** bytes) {
    auto& own = *static_cast<Impl*>(self);
    return own.contained(reader, [&] {
      *bytes = own.buffer_.data();
      return static_cast<la_ssize_t>(own.read_some());
    });
  }

  static la_ssize_t read_plain(archive* reader, void* self, const void** bytes) {
    auto& own = *static_cast<Impl*>(self);
    return own.contained(reader, [&] {
      const la_ssize_t count = own.pull();
      if (own.failure_) std::rethrow_exception(own.failure_);
      if (count < 0) own.fail(own.plain_.get());
      *bytes = own.plain_block_;
      return count;
    });
  }

  // The next bytes without compression: how many, 0 at the end, negative for an error.
  la_ssize_t pull() {
    if (plain_ended_) return 0;
    la_int64_t offset = 0;
    std::size_t size = 0;
    const void* bytes = nullptr;
    const int answer = archive_read_data_block(plain_.get(), &bytes, &size, &offset);
    if (answer == ARCHIVE_EOF) {
      plain_ended_ = true;
      return 0;
    }
    if (answer != ARCHIVE_OK) {
      if (!failure_) failure_ = failure_of_plain();
      return -1;
    }
    if (size > bounds_.max_bytes - plain_bytes_) {
      refuse(fmt::format("it has more than {} bytes, unpacked", bounds_.max_bytes));
    }
    plain_block_ = static_cast<const char*>(bytes);
    plain_bytes_ += size;
    plain_sum_.update({plain_block_, size});
    return static_cast<la_ssize_t>(size);
  }

  std::exception_ptr failure_of_plain() const {
    try {
      refuse(escape_for_display(message(plain_.get())));
    } catch (...) {
      return std::current_exception();
    }
  }

  int file_;
  TarBounds bounds_;
  CallControl control_;
  std::function<void(std::uint64_t)> on_position_;
  Utf8Locale locale_;
  std::vector<char> buffer_;
  // Order matters: the second reads from the first.
  Reader plain_;
  Reader tar_;
  const char* plain_block_ = nullptr;
  bool plain_ended_ = false;
  Sha256 file_sum_;
  Sha256 plain_sum_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t plain_bytes_ = 0;
  std::uint64_t stated_ = 0;
  std::uint64_t entries_ = 0;
  std::uint64_t entry_size_ = 0;
  std::exception_ptr failure_;
};

TarStream::TarStream(int file, const TarBounds& bounds, const CallControl& control, Sums sums,
                     std::function<void(std::uint64_t)> on_position)
    : impl_(std::make_unique<Impl>(file, bounds, control, sums, std::move(on_position))) {}
TarStream::~TarStream() = default;

std::optional<TarEntry> TarStream::next() { return impl_->next(); }
std::optional<TarStream::Block> TarStream::read() { return impl_->read(); }
TarSums TarStream::finish() { return impl_->finish(); }

}  // namespace casemate::images
