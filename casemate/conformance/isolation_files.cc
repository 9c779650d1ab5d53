// Files of the host's, and links and names that lead to them.

#include <array>
#include <chrono>
#include <memory>
#include <string>

#include "casemate/base/digest.h"
#include "casemate/conformance/guest_program.h"
#include "casemate/conformance/host_marks.h"
#include "casemate/conformance/probe.h"

namespace casemate::conformance {
namespace {

void host_files_are_out_of_sight(Trial& trial) {
  const HostFile file;
  expect_done(trial, "looking for a file of the host's that every user there may read", R"py(
import glob, os
path, mark = os.environ["PROBE_PATH"], os.environ["PROBE_MARK"]
for place in [path] + [root + path for root in glob.glob("/proc/[0-9]*/root")]:
    try:
        if mark in open(place).read(): print("read", place)
    except OSError:
        pass
)py",
              {{"PROBE_PATH", file.path()}, {"PROBE_MARK", file.mark()}});
}

void secrets_of_the_host_are_out_of_sight(Trial& trial) {
  // What stands in one of these places inside is a secret only where it is the host's own.
  expect_done(trial, "looking where hosts keep keys, tokens and the sockets of engines", R"py(
import glob, hashlib, json, os
for path, digest in json.loads(os.environ["PROBE_DIGESTS"]).items():
    try:
        if hashlib.sha256(open(path, "rb").read(1 << 20)).hexdigest() == digest:
            print("the host's", path)
    except OSError:
        pass
homes = ("/root", "/home/*")
in_homes = (".ssh/*", ".gnupg/*", ".aws/*", ".azure/*", ".config/gcloud/*", ".oci/*", ".kube/*", ".docker/*",
            ".config/containers/auth.json", ".config/gh/*", ".netrc", ".git-credentials", ".pgpass", ".my.cnf",
            ".npmrc", ".pypirc", ".cargo/credentials*", ".terraform.d/*", ".vault-token")
patterns = [f"{home}/{name}" for home in homes for name in in_homes] + [
    "/run/secrets/*", "/var/run/secrets/*", "/var/run/secrets/*/*/token", "/etc/kubernetes/*",
    "/var/lib/kubelet/*", "/var/lib/rancher/*", "/etc/rancher/*", "/var/lib/cloud/*", "/run/cloud-init/*",
    "/etc/boto.cfg", "/var/lib/docker/*", "/var/lib/containerd/*",
    "/run/docker.sock", "/var/run/docker.sock", "/run/user/*/docker.sock", "/run/containerd/*.sock",
    "/run/podman/*.sock", "/run/user/*/podman/*.sock", "/run/buildkit/*", "/run/crio/*.sock",
    "/var/run/cri-dockerd.sock", "/run/dbus/*", "/run/user/*/bus", "/run/systemd/private",
    "/run/systemd/journal/*", "/run/lxd*", "/var/lib/lxd/*", "/run/libvirt/*"]
for pattern in patterns:
    for path in glob.glob(pattern): print("there is", path)
)py",
              {{"PROBE_DIGESTS", json_of(host_digests())}});
}

// A program that the host runs again would be the way out (CVE-2019-5736).
void programs_cannot_be_rewritten(Trial& trial) {
  expect_done(trial, "opening for writing what runs here, what serves it, and their libraries",
              R"py(
import errno, os, sys
paths = {"/proc/self/exe", os.path.realpath(sys.executable), os.path.realpath("/bin/sh")}
for number in {1, os.getppid()}:
    paths.add(f"/proc/{number}/exe")
    try:
        paths.add(open(f"/proc/{number}/cmdline").read().split("\0")[0])
    except OSError:
        pass
paths.update(line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if " /" in line)
def try_it(path, name):
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        # Who gets as far as that may write as soon as nobody runs it.
        if error.errno != errno.ETXTBSY: return
    print("could be rewritten:", name)
for path in sorted(path for path in paths if path.startswith("/")):
    try_it(path, path)
    try:
        held = os.open(path, os.O_PATH)
    except OSError:
        continue
    try_it(f"/proc/self/fd/{held}", path + " by a descriptor")
    os.close(held)
)py");
}

// The way out of CVE-2024-21626.
void no_directory_leads_out(Trial& trial) {
  const HostFile file;
  expect_done(trial, "walking upwards from every open directory", R"py(
import os
path, mark = os.environ["PROBE_PATH"], os.environ["PROBE_MARK"]
starts = ["/proc/self/cwd", "/proc/self/root", "/proc/1/cwd"]
starts += [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
for start in starts:
    for steps in range(12):
        try:
            if mark in open(start + "/.." * steps + path).read(): print("out by", start)
        except OSError:
            pass
)py",
              {{"PROBE_PATH", file.path()}, {"PROBE_MARK", file.mark()}});
}

// -- Names that a program exchanges while they are used -------------------------------------------

// Ends by itself within half a minute, and with its process.
constexpr std::string_view kExchanging = R"py(
import ctypes, os, signal
signal.alarm(30)
libc = ctypes.CDLL(None)
HERE, EXCHANGE = -100, 2
os.makedirs("turn"); os.makedirs("host-turn")
for name in ("turn/secret.txt", "leaf", "host-turn/mark"):
    with open(name, "w") as file: file.write("bytes of its own\n")
os.symlink(os.environ["PROBE_HOST"], "host-link")
pairs = ((b"turn", b"link-dir"), (b"leaf", b"link-file"), (b"host-turn", b"host-link"))
with open("ready", "w") as file: file.write("ready")
while True:
    for one, other in pairs: libc.renameat2(HERE, one, HERE, other, EXCHANGE)
)py";

// What both a directory and the link in its place may answer.
template <typename Act>
bool done_or_refused(const Act& act) {
  try {
    act();
    return true;
  } catch (const SandboxPathRefused&) {
  } catch (const SandboxFileError&) {
  }
  return false;
}

void exchanged_links_are_not_followed(Trial& trial) {
  // Both answers are seen long before; a provider that always refuses is not caught between.
  constexpr int kTries = 400;
  constexpr int kTriesAtLeast = 60;
  const HostFile host;
  trial.lay_out();
  ExecRequest request;
  request.command = Argv{{"python3", "-c", std::string(kExchanging)}};
  request.directory = trial.work();
  request.environment = {{"PROBE_HOST", host.directory()}};
  const std::unique_ptr<Process> exchanging = trial.call().start(request, trial.control());
  while (!trial.stat("ready")) {
    if (std::chrono::steady_clock::now() >= *trial.control().deadline) {
      throw Unmet("waiting for a program that exchanges names", "it begins", "it does not");
    }
  }
  // Where each of them takes long (an emulated machine with one processor), fewer have to do.
  const auto begun = std::chrono::steady_clock::now();
  const auto enough = begun + (*trial.control().deadline - begun) / 3;
  int done = 0;
  const auto read = [&](const std::string& path) {
    std::string seen;
    if (!done_or_refused([&] { seen = trial.read(path); })) return 0;
    expect_equal("reading '" + path + "' while it is exchanged for a link that leads out", seen,
                 std::string(kInside));
    return 1;
  };
  const auto goes_on = [&](int tries) {
    if (done == 0) return tries < kTries;
    return tries < kTriesAtLeast && std::chrono::steady_clock::now() < enough;
  };
  for (int tries = 0; goes_on(tries); ++tries) {
    done += read("turn/secret.txt") + read("leaf") + read("host-turn/mark");
    done_or_refused([&] { trial.write("turn/planted.txt", kInside); });
    done_or_refused([&] { trial.write("host-turn/planted.txt", kInside); });
  }
  trial.expect_outside_untouched("writing while names are exchanged for links", {"planted.txt"});
  expect_equal("the host's directory after that", host.names(), std::string("mark"));
}

// A call is made of directories, and some stand where programs of earlier calls could write. What
// is bound or masked by such a name can be exchanged (CVE-2023-27561, CVE-2025-31133).
constexpr std::string_view kReplacing = R"py(
import os
host, own, work = (os.environ["PROBE_" + name] for name in ("HOST", "OWN", "WORK"))
# In this one place, which is the sandbox's: elsewhere it might be a host's that is shared by mistake.
for name in os.listdir(work):
    path = os.path.join(work, name)
    if path == own: continue
    try:
        os.rename(path, path + ".before")
        os.symlink(host, path)
    except OSError:
        pass
)py";

constexpr std::string_view kLookingAround = R"py(
import os, stat
mark = os.environ["PROBE_MARK"]
points = [line.split()[4] for line in open("/proc/self/mountinfo")]
for point in points + [os.getcwd(), os.path.dirname(os.getcwd()), os.path.expanduser("~"), "/tmp"]:
    for path in (point, point + "/mark"):
        try:
            if stat.S_ISREG(os.stat(path).st_mode) and mark in open(path, errors="replace").read(1 << 16):
                print("the host's file is", path)
        except OSError:
            pass
)py";

void what_a_call_is_made_of_cannot_be_exchanged(Trial& trial) {
  const HostFile host;
  // Of its own: what is replaced stays so.
  SandboxSpec spec = trial.spec();
  spec.kind += "-exchanged";
  trial.in_sandbox(spec, [&](Call& call) {
    expect_done(call, trial.control(), "replacing by links what later calls may be made of",
                kReplacing,
                {{"PROBE_HOST", host.directory()},
                 {"PROBE_OWN", call.directory()},
                 {"PROBE_WORK", spec.work_dir}});
  });
  trial.in_sandbox(spec, [&](Call& call) {
    expect_done(call, trial.control(), "looking around in the next call", kLookingAround,
                {{"PROBE_MARK", host.mark()}});
  });
  expect_equal("the host's directory after that", host.names(), std::string("mark"));
}

}  // namespace

std::span<const Probe> isolation_file_probes() {
  static constexpr auto kProbes = std::to_array<Probe>({
      {.id = "host-files-are-out-of-sight",
       .sentence = "files of the host's are not seen",
       .run = host_files_are_out_of_sight,
       .from = Isolation::os_process},
      {.id = "secrets-of-the-host-are-out-of-sight",
       .sentence = "no key, token or engine of the host's is seen",
       .run = secrets_of_the_host_are_out_of_sight,
       .from = Isolation::os_process},
      {.id = "programs-cannot-be-rewritten",
       .sentence = "neither the programs of the place nor what serves them can be written",
       .run = programs_cannot_be_rewritten,
       .from = Isolation::os_process},
      {.id = "no-directory-leads-out",
       .sentence = "no open directory leads to the host's files",
       .run = no_directory_leads_out,
       .from = Isolation::os_process},
      {.id = "exchanged-links-are-not-followed",
       .sentence = "a name that is exchanged for a link while it is used leads nowhere else",
       .run = exchanged_links_are_not_followed,
       .also = Capability::files_out,
       .from = Isolation::os_process},
      {.id = "what-a-call-is-made-of-cannot-be-exchanged",
       .sentence = "nothing that a program leaves has a later call bind or show something else",
       .run = what_a_call_is_made_of_cannot_be_exchanged,
       .from = Isolation::os_process},
  });
  return kProbes;
}

}  // namespace casemate::conformance
