"""The installed library serves a project that knows nothing of this tree."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["CASEMATE_BUILD_DIR"])

PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(host LANGUAGES CXX)
find_package(casemate 0.1 REQUIRED)
add_executable(host host.cc)
target_link_libraries(host PRIVATE casemate::casemate)
"""

# The wiring test that a host of its own would have: one line, which starts nothing.
HOST = """\
#include <iostream>
#include <memory>

#include "casemate/backends/linux/linux_backend.h"
#include "casemate/core/errors.h"
#include "casemate/kinds/codeact/codeact.h"
#include "casemate/policy/router.h"

int main(int argc, char**) {
  using namespace casemate;
  const Isolation floor = argc > 1 ? Isolation::vm : Isolation::container;
  try {
    const SandboxRouter router({std::make_shared<LinuxBackend>()}, {.min_isolation = floor});
    router.ensure_can_serve(codeact_sandbox_spec());
    std::cout << "served\\n";
  } catch (const SandboxError& error) {
    std::cout << error.code() << "\\n";
  }
}
"""

# A field of each struct that a host fills in, by name; the rest is left to its initialisers.
NAMED = """\
#include "casemate/backends/docker/docker_backend.h"
#include "casemate/backends/in_process/backend.h"
#include "casemate/backends/linux/linux_backend.h"
#include "casemate/backends/microvm/microvm_backend.h"
#include "casemate/backends/oci/oci_backend.h"
#include "casemate/conformance/conformance.h"
#include "casemate/egress/gateway.h"
#include "casemate/guest/stream/multiplexed_stream.h"
#include "casemate/host_tools/channel.h"
#include "casemate/host_tools/over_exec.h"
#include "casemate/host_tools/run.h"
#include "casemate/images/packed.h"
#include "casemate/kinds/codeact/codeact.h"
#include "casemate/kinds/codeact/run.h"
#include "casemate/kinds/codeact/spec.h"
#include "casemate/local/local_options.h"
#include "casemate/mcp/http.h"
#include "casemate/mcp/server.h"
#include "casemate/mcp/stdio.h"
#include "casemate/policy/router.h"
#include "casemate/tool/sandboxed_tool.h"
#include "casemate/tool/tool.h"
#include "casemate/transfer/collect.h"
#include "casemate/transfer/sink.h"

using namespace casemate;
const LinuxBackendOptions linux_options{.state_dir = "/run/casemate"};
const DockerBackendOptions docker_options{.host = "/run/docker.sock"};
const OciBackendOptions oci_options{.runtime = "crun"};
const MicrovmBackendOptions microvm_options{.qemu = "qemu-system-x86_64"};
const images::PackedImagesOptions packed_options{.directory = "/srv/images"};
const local::LocalOptions local_options{.state_dir = "/run/casemate"};
const guest::MultiplexedStreamOptions stream_options{.id = "0123456789abcdef"};
const images::ImageStoreOptions images_options{.directory = "/srv/images"};
const WarmPool pool{.sandboxes = 2};
const in_process::InProcessBackendOptions in_process_options{.purge_count = 1};
const in_process::InProcessSandboxOptions fake_options{.default_stdout = "1"};
const RouterOptions router_options{.min_isolation = Isolation::container};
const CodeactToolOptions tool_options{.outputs = CodeactOutputs::declared};
const CodeactSpecOptions spec_options{.outputs = CodeactOutputs::declared};
const CodeactRequest request{.code = "1"};
const SandboxedToolOptions sandboxed_options{.name = "a"};
const HostToolRegistryOptions registry_options{.max_host_tool_calls_per_run = 1};
const HostToolRunOptions run_options{.id = "0123456789ab"};
const HostToolChannelOptions channel_options{.max_in_flight = 1};
const OverExecOptions over_exec_options{.interpreter = "python3"};
const conformance::ConformanceOptions conformance_options{.probes = {"a"}};
const EgressOptions egress_options{.max_tunnels = 1};
const mcp::ServerOptions server_options{.name = "a"};
const mcp::HostMethod host_method{.keep_for = std::chrono::milliseconds(1)};
const mcp::ConversationOptions conversation_options{.max_handles = 1};
const mcp::HttpServerOptions http_server_options{.max_connections = 1};
const mcp::HttpOptions http_options{.max_sessions = 1};
const mcp::StdioOptions stdio_options{.out = 1};
const FileSystemSinkOptions sink_options{.overwrite = Overwrite::yes};
const CollectOptions collect_options{.working_directory = "/workspace"};
const CallControl control{.deadline = {}};
const ToolCall call{.progress = {}};
const ExecRequest exec{.command = Argv{{"true"}}};
const CallProfile profile{.id = "0123456789ab"};
const SandboxSpec spec{.kind = "codeact"};
const TransferLimits transfer{.max_files = 1};
const SandboxLimits limits{.files_in = transfer};
const ResourceLimit limit{.value = 1};
const Resources resources{.cpu_seconds = limit};
const Resources more_resources{.memory_bytes = limit};
const BackendDeclarations declarations{.name = "a"};
const DeclaredOutput output{.path = "a"};
"""


def run(*argv):
    return subprocess.run(argv, check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.prefix = Path(cls.folder.name) / "prefix"
        run("cmake", "--install", str(BUILD), "--prefix", str(cls.prefix))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_only_what_users_need_is_there(self):
        headers = [path.name for path in self.prefix.rglob("*.h")]
        self.assertIn("sandbox.h", headers)
        self.assertEqual([name for name in headers if name.endswith("_test.h")], [])

    def test_one_target_builds_all_that_is_installed(self):
        # The archives and programs of the install script, against what the target builds.
        script = "".join(path.read_text() for path in BUILD.rglob("cmake_install.cmake"))
        installed = set(re.findall(r'"([^"]+\.a|[^"]+/casemate)"', script))
        installed = {Path(name).name for name in installed if name.startswith(str(BUILD))}
        plan = run("ninja", "-C", str(BUILD), "-t", "commands", "casemate_installed")
        built = {Path(name).name for name in plan.split()}
        self.assertTrue(installed)
        self.assertEqual(installed - built, set())

    def test_the_tree_is_configured_where_no_test_library_is(self):
        """As `make run` finds a user's machine."""
        with tempfile.TemporaryDirectory() as build:
            run("cmake", "--preset", "release", "-B", build, "-DCASEMATE_TESTS=OFF")
            plan = run("ninja", "-C", build, "-t", "commands", "casemate_program")
        self.assertIn("apps/casemate/main.cc", plan)
        self.assertNotIn("gtest", plan)

    def test_a_project_finds_and_links_it(self):
        source = Path(self.folder.name) / "host"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(PROJECT)
        (source / "host.cc").write_text(HOST)
        build = source / "build"
        said = run("cmake", "-G", "Ninja", "-S", str(source), "-B", str(build),
                   f"-DCMAKE_PREFIX_PATH={self.prefix}")
        self.assertNotIn("Warning", said)
        run("cmake", "--build", str(build))
        self.assertEqual(run(str(build / "host")), "served\n")
        self.assertEqual(run(str(build / "host"), "--floor-vm"), "SandboxBackendNotPermitted\n")

    def test_a_host_that_warns_of_everything_may_name_only_some_fields(self):
        for header in self.prefix.rglob("*.h"):
            for name in re.findall(r"^struct (\w+Options) {", header.read_text(), re.M):
                if name not in ("TmpfsOptions", "HostBridgeOptions"):  # which no host fills in
                    self.assertIn(f"{name} ", NAMED, header)
        source = Path(self.folder.name) / "named.cc"
        source.write_text(NAMED)
        run("c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{self.prefix}/include", str(source))

    def test_an_installation_that_was_stopped_half_way_and_run_again_is_whole(self):
        expected = self.contents(self.prefix)
        again = Path(self.folder.name) / "again"
        # Files of the first that are half there, or from an earlier build with another content and time.
        process = subprocess.Popen(["cmake", "--install", str(BUILD), "--prefix", str(again)], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        for _ in range(20):
            process.stdout.readline()
        process.kill()
        process.wait()
        process.stdout.close()
        for number, path in enumerate(sorted(path for path in again.rglob("*") if path.is_file())):
            if number % 3 == 0:
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        run("cmake", "--install", str(BUILD), "--prefix", str(again))
        self.assertEqual(self.contents(again), expected)

    @staticmethod
    def contents(prefix):
        return {str(path.relative_to(prefix)): (path.stat().st_mode, path.read_bytes())
                for path in prefix.rglob("*") if path.is_file()}

    def test_nothing_installed_names_the_source_tree(self):
        # Each directory of it: the tree itself may be called /usr, which is named for another reason.
        tree = Path(__file__).resolve().parents[2]
        named = re.compile("|".join(re.escape(f"{each}/") for each in [BUILD, *tree.iterdir()] if each.is_dir()))
        for path in self.prefix.rglob("*.cmake"):
            self.assertIsNone(named.search(path.read_text()), path)


if __name__ == "__main__":
    unittest.main()
