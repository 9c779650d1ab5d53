#pragma once

// The verbs, one a file. Each takes its line, already taken apart by its own table and with the
// defaults of casemate.toml, and returns the exit status; refusals are thrown and reported by
// main().

#include <vector>

#include "apps/casemate/config.h"
#include "apps/casemate/help.h"
#include "apps/casemate/option_parser.h"

namespace casemate::app {

extern const VerbSpec kRunVerb;
int run(const ParsedLine& line, const Config& config);

extern const VerbSpec kExecVerb;
int exec(const ParsedLine& line, const Config& config);

extern const VerbSpec kListVerb;
int list(const ParsedLine& line, const Config& config);

extern const VerbSpec kRemoveVerb;
int remove(const ParsedLine& line, const Config& config);

extern const VerbSpec kImageVerb;
int image(const ParsedLine& line, const Config& config);

extern const VerbSpec kBackendsVerb;
int backends(const ParsedLine& line, const Config& config);

extern const VerbSpec kConformanceVerb;
int conformance_verb(const ParsedLine& line, const Config& config);

extern const VerbSpec kDoctorVerb;
int doctor(const ParsedLine& line, const Config& config);

extern const VerbSpec kMcpVerb;
int mcp_verb(const ParsedLine& line, const Config& config);

extern const VerbSpec kBenchVerb;
int bench_verb(const ParsedLine& line, const Config& config);

extern const VerbSpec kCompletionVerb;
int completion(const ParsedLine& line, const Config& config);

// Every verb of this program, in the order of the overview.
std::vector<const VerbSpec*> all_verbs();

}  // namespace casemate::app
