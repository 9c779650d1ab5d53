#include <fmt/format.h>

#include "casemate/core/errors.h"
#include "casemate/core/guest_path.h"
#include "casemate/host_tools/over_exec_guest.h"

namespace casemate {
namespace {

// With the arguments: "session" or nothing, the run directory, the program's words. The last mark
// is the end of the run, so all that was printed is in its file by then.
constexpr std::string_view kWatcher = R"sh(
mark() { printf %s "$2" >"$1.part" && mv -f "$1.part" "$1"; }
begin() { shift 2; export PYTHONUNBUFFERED=1 PYTHONNOUSERSITE=1; exec "$@"; }
[ -z "$1" ] || mark "$2/host_tools/program_session" "$$"
begin "$@" >"$2/host_tools/program_stdout.txt" 2>"$2/host_tools/program_stderr.txt" </dev/null &
mark "$2/host_tools/program_pid" "$!"
wait "$!"
mark "$2/host_tools/program_exit_code" "$?"
)sh";

// The module is loaded, with the library's own modules that it needs, before the files that the run
// shares can be imported, which are in the work directory.
//
// Variables of ours would reach the program when its environment had some of that name: they are
// unset, and the rest are positional.
constexpr std::string_view kBeforeStart = R"sh(mkdir -p "$1/work" && cd "$1/work" || exit 1
casemate_path=$1/host_tools
set -f
IFS=:
for casemate_entry in ${PYTHONPATH-}; do
  case $casemate_entry in
    *//* | */./* | */../* | */. | */..) ;;
    "$1" | "$1"/*) ;;
    /*) casemate_path=$casemate_path:$casemate_entry ;;
  esac
done
unset IFS
set +f
PYTHONPATH=$casemate_path
export PYTHONPATH
unset casemate_path casemate_entry
printf '%s\n' 'import os, sys' 'try: import casemate_tools' 'except Exception: pass' \
  'sys.path.insert(0, os.getcwd())' >"$1/host_tools/sitecustomize.py" || exit 1
)sh";

}  // namespace

std::string over_exec_launcher(const GuestRunLayout& layout, std::string_view interpreter) {
  if (interpreter.empty() || interpreter.find('\0') != std::string_view::npos) {
    throw InvalidArgument("an interpreter's name is empty or has a NUL",
                          "name it as on the guest's PATH, like python3, or by its absolute path");
  }
  const std::string watcher = shell_quote(kWatcher);
  std::string text = fmt::format(
      "# Starts the program of one run and returns.\n"
      "set -- {} {} {} \"$@\"\n"
      "{}"
      "if command -v setsid >/dev/null 2>&1; then\n"
      "  setsid nohup sh -c {} run_program session \"$@\" </dev/null >/dev/null 2>&1 &\n"
      "  printf '%s\\n' '{}'\n"
      "else\n"
      "  nohup sh -c {} run_program '' \"$@\" </dev/null >/dev/null 2>&1 &\n"
      "fi\n",
      shell_quote(layout.run_directory()), shell_quote(interpreter), shell_quote(layout.program()),
      kBeforeStart, watcher, kOverExecSessionLine, watcher);
  if (text.size() > kHostToolLauncherBytes) {
    throw InvalidArgument(fmt::format("the launcher of the run has {} bytes; it may have {}",
                                      text.size(), kHostToolLauncherBytes),
                          "use a shorter run directory, interpreter or program name");
  }
  return text;
}

}  // namespace casemate
