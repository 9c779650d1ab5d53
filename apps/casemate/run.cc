// `casemate run`.

#include <optional>
#include <utility>

#include "apps/casemate/config.h"
#include "apps/casemate/host_variable.h"
#include "apps/casemate/run_options.h"
#include "apps/casemate/run_program.h"
#include "apps/casemate/verbs.h"
#include "apps/casemate/wiring.h"
#include "casemate/images/reference.h"
#include "casemate/images/store.h"

namespace casemate::app {

int run(const ParsedLine& line, const Config& config) {
  const Log log = make_log(line);
  Backends backends;
  std::optional<RunOptions> options;
  images::ImageReference image;
  read_line(line, [&](const ParsedLine& given) {
    RunOptions read = read_run_options(given, host_variable);
    backends = make_backends(config, log, read.server_names, read.backend.value_or(""));
    refuse_unknown_backend(read, backends);
    settle_image(given, config, read);
    image = images::parse_image_reference(read.image);
    options = std::move(read);
  });
  refuse_floor_of_machines(*options, backends);
  add_host_tools(*options, config.host_tools);
  // Of an engine's images only the engine knows.
  if (options->check && options->backend != kDockerBackendName) {
    images::ImageStore(image_store_options(config, log)).check(image, {});
  }
  return run_program(*options, backends, log);
}

}  // namespace casemate::app
