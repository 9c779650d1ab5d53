#include "casemate/images/unpack.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "casemate/core/errors.h"
#include "casemate/images/store.h"
#include "casemate/images/store_records.h"
#include "casemate/images/tree_writer.h"
#include "casemate/sys/beneath.h"
#include "casemate/sys/error.h"
#include "casemate/sys/file.h"
#include "casemate/sys/unique_fd.h"

namespace casemate::images {
namespace {

using sys::UniqueFd;

constexpr char kLayersName[] = "layers";

void check_sums(const SourceLayer& layer, const TarSums& sums, std::size_t number) {
  const bool blob_differs =
      layer.blob && (layer.blob->digest != sums.digest || layer.blob->size != sums.bytes);
  if (!blob_differs && layer.diff_id == sums.unpacked_digest) return;
  throw SandboxImageInvalid(
      fmt::format("layer {} of the image has another content than its digest says: {}", number,
                  blob_differs ? layer.blob->digest : layer.diff_id),
      "export the image anew");
}

}  // namespace

void unpack_image(ImageSource& source, const StoreDirectory& store, const std::string& name,
                  const TarBounds& bounds, std::int64_t imported, const ProgressSink& progress,
                  const CallControl& control) {
  NewDirectory fresh(store);
  sys::make_directory_at(fresh.get(), kImageRootName, 0755);
  const UniqueFd root =
      sys::open_at(fresh.get(), kImageRootName, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (fchmod(root.get(), 0755) < 0) sys::throw_errno("making an image's directory");
  sys::make_directory_at(fresh.get(), kLayersName, 0700);
  {
    const UniqueFd layers =
        sys::open_at(fresh.get(), kLayersName, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    source.stage(layers.get(), bounds, progress, control);
  }
  const std::vector<std::string>& diff_ids = source.config().diff_ids;
  TarBounds left = bounds;
  TreeWriter writer(root.get());
  for (std::size_t number = 0; number < diff_ids.size(); ++number) {
    const SourceLayer layer = source.open_layer(number);
    ProgressStep step(progress,
                      fmt::format("unpacking layer {} of {}", number + 1, diff_ids.size()),
                      static_cast<std::uint64_t>(sys::status_of(layer.file.get()).st_size));
    TarStream stream(layer.file.get(), left, control, Sums::wanted,
                     [&](std::uint64_t position) { step.reach(position); });
    writer.add_layer(stream);
    const TarSums sums = stream.finish();
    check_sums(layer, sums, number + 1);
    step.end();
    left.max_bytes -= sums.unpacked_bytes;
    left.max_entries -= sums.entries;
  }
  remove_entry(fresh.get(), kLayersName);
  StoredImage image;
  image.id = source.id();
  image.architecture = source.config().platform.architecture;
  image.layers = diff_ids.size();
  image.bytes = writer.bytes();
  image.files = writer.files();
  image.passed_over = writer.passed_over();
  image.imported = imported;
  image.environment = source.config().environment;
  write_image_record(fresh.get(), image);
  ProgressStep step(progress, "writing to disk");
  fresh.publish(name);
  step.end();
}

}  // namespace casemate::images
