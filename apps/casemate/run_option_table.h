#pragma once

// The options of `casemate run`, of which `casemate mcp` takes all but a few.

#include <array>
#include <string_view>

#include "apps/casemate/config.h"
#include "apps/casemate/option_parser.h"
#include "casemate/backends/docker/docker_backend.h"
#include "casemate/backends/linux/linux_backend.h"
#include "casemate/backends/microvm/microvm_backend.h"
#include "casemate/backends/oci/oci_backend.h"

namespace casemate::app {

inline constexpr Repeat kOnce = Repeat::refused;
inline constexpr Repeat kMany = Repeat::allowed;

inline constexpr std::array<std::string_view, 9> kCapabilities = {
    "exec",       "run_code",     "host_tools", "files_in",         "files_out",
    "files_list", "files_delete", "snapshot",   "attached_identity"};
inline constexpr std::array<std::string_view, 2> kIdentities = {"app", "user"};
inline constexpr std::array<std::string_view, 7> kRungs = {
    "process", "runtime", "os_process", "container", "hardened_container", "microvm", "vm"};
inline constexpr std::array<std::string_view, 4> kImages = {"host",
                                                            "dir:", "oci:", "docker-archive:"};
inline constexpr std::array<std::string_view, 4> kBackends = {
    kLinuxBackendName, kOciBackendName, kDockerBackendName, kMicrovmBackendName};

inline constexpr auto kRunOptions = std::to_array<OptionSpec>({
    {"--file", "NAME=PATH|PATH", kMany, "none",
     "share the host's file PATH under NAME (default: the last part of PATH); the first = splits, "
     "links of yours are followed, regular files only",
     "--file sales.csv=/data/2026.csv", ValueForm::named_path},
    {"--output",
     "NAME",
     kMany,
     "none",
     "the program will write NAME in its current directory; land it",
     "--output report.png",
     ValueForm::text,
     {},
     "--manifest"},
    {"--manifest",
     "",
     kOnce,
     "off",
     "the program lists its outputs in outputs.json: {\"outputs\": [{\"path\": \"a.txt\"}]}",
     "--manifest --out-dir out",
     ValueForm::text,
     {},
     "--output"},
    {"--out-dir", "DIR", kOnce, "none; required with --output and --manifest",
     "where outputs land; made when it is not there", "--out-dir out", ValueForm::directory},
    {"--overwrite", "", kOnce, "refuse", "outputs may replace files", "--overwrite"},
    {"--allow", "HOST[:PORT]", kMany, "none: no network",
     "a host that programs may reach: a name, *.suffix (every name below it) or an IP address "
     "([...] around IPv6), on ports 80 and 443 or on PORT; everything that a program can read "
     "can go there",
     "--allow pypi.org --allow db.example.org:5432"},
    {"--no-sni-check", "", kOnce, "off: it must",
     "TLS to an allowed host need not name that host (SNI): for clients that leave it out; a "
     "server that answers for many names can then be asked for any of them",
     "--no-sni-check"},
    {"--host-tool", "NAME=COMMAND", kMany, "none",
     "a function of this host that the program may call as casemate_tools.call(\"NAME\", "
     "key=value): COMMAND, run by `sh -c` here and as you, reads the arguments, a JSON object, on "
     "standard input and prints one JSON value; another exit status than 0 is a refusal, and what "
     "it writes to standard error goes to the log, never to the program. It is unstamped: it acts "
     "with the application's authority (app), its answers are untrusted, and it carries something "
     "out; [host_tools.NAME] in casemate.toml stamps one",
     "--host-tool 'lookup=./lookup --table stores'"},
    {"--max-host-tool-calls", "N", kOnce, "16",
     "calls of host tools in one run, the refused ones among them", "--max-host-tool-calls 1000",
     ValueForm::number},
    {"--host-tool-timeout", "SECONDS", kOnce, "30",
     "a call's time; then its command is killed and the program gets a refusal. A timeout in "
     "casemate.toml is that tool's own",
     "--host-tool-timeout 5", ValueForm::number},
    {"--require-declared", "", kOnce, "off",
     "refuse host tools that do not declare source, sink and identity, which those of --host-tool "
     "never do",
     "--require-declared"},
    {"--timeout", "SECONDS", kOnce, "120",
     "the program's time, from its start; may be fractional; at most 604800", "--timeout 2.5",
     ValueForm::number},
    {"--memory", "SIZE", kOnce, "512M",
     "memory; bytes or with K, M, G; at least 16M; files on the disk count as memory too, so that "
     "--memory and --disk are held as one sum",
     "--memory 1G", ValueForm::size},
    {"--pids", "N", kOnce, "128", "processes and threads at a time; at least 4", "--pids 64",
     ValueForm::number},
    {"--cpus", "X", kOnce, "1", "processors; may be fractional; at least 0.01", "--cpus 0.5",
     ValueForm::number},
    {"--disk", "SIZE", kOnce, "256M", "what the program may write; at least 1M", "--disk 1G",
     ValueForm::size},
    {"--files-in-limit", "PER_FILE,TOTAL,COUNT", kOnce, "8M,32M,64",
     "caps on the program and the files shared with it; `casemate backends` shows the most",
     "--files-in-limit 64M,256M,64"},
    {"--files-out-limit", "PER_FILE,TOTAL,COUNT", kOnce, "8M,32M,8",
     "caps on the outputs; `casemate backends` shows the most", "--files-out-limit 64M,256M,64"},
    {"--deny-capability", "NAME", kMany, "none",
     "refuse a run that needs this capability: exec, run_code, host_tools, files_in, files_out, "
     "files_list, files_delete, snapshot or attached_identity",
     "--deny-capability files_out", ValueForm::text, kCapabilities},
    {"--deny-identity", "NAME", kMany, "none",
     "refuse a run that acts under this identity: app or user", "--deny-identity user",
     ValueForm::text, kIdentities},
    {"--label", "NAME=VALUE", kMany, "none",
     "kept with the sandbox, for programs that use the library; no listing here shows it",
     "--label job=nightly"},
    {"--check", "", kOnce, "off",
     "match everything, start nothing: exit 0 or the refusal; it asks no registry for an image and "
     "does not make --out-dir; with --json, "
     "{\"check\":\"passed\",\"error\":null} or the refusal's object",
     "--check"},
    {"--image", "REF", kOnce, "host",
     "host, a read-only view of this machine's /usr; dir:PATH, oci:PATH[:TAG], "
     "docker-archive:PATH, sha256:ID of `casemate image ls` or a registry reference, fetched by "
     "skopeo; what is not in the local store is imported",
     "--image python:3.13-slim", ValueForm::text, kImages},
    {"--env", "NAME=VALUE|NAME", kMany, "none",
     "set it for the program, or pass this host's value of NAME; nothing else is inherited",
     "--env LANG=de_DE.UTF-8"},
    {"--stdin", "", kOnce, "off: the program's input is empty",
     "forward standard input to the program", "--stdin"},
    {"--backend", "NAME", kOnce,
     "the first of linux, oci, docker and microvm that is available and can serve",
     "run on this backend", "--backend linux", ValueForm::text, kBackends},
    {"--min-isolation", "RUNG", kOnce, "container",
     "the floor: process, runtime, os_process, container, hardened_container, microvm or vm",
     "--min-isolation container", ValueForm::text, kRungs},
    {"--scope", "S", kOnce, "cli", "first part of the sandbox's key", "--scope reports"},
    {"--thread", "T", kOnce, "a fresh one", "second part of the key", "--thread 42"},
    {"--agent", "A", kOnce, "default", "third part of the key", "--agent analyst"},
    {"--keep", "", kOnce, "off: the sandbox ends with its last run",
     "leave the sandbox, its home directory and /workspace, for the next run with the same key; "
     "needs --thread",
     "--thread 42 --keep"},
    {"--idle-ttl", "SECONDS", kOnce, "600",
     "with --keep: how long the sandbox waits for its next run or exec before it ends; at most "
     "604800",
     "--idle-ttl 3600", ValueForm::number},
    {"--json", "", kOnce, "off", "one JSON object on standard output instead of the streams",
     "--json"},
    kConfigOption,
    {"-v", "", kOnce, "quiet", "log to standard error", "-v"},
});

}  // namespace casemate::app
