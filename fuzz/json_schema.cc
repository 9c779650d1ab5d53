// A schema and a value, both of a stranger's: the verdict is a verdict, and keeps to the laws of
// logic. The two are parted by a NUL.

#include "casemate/base/json_schema.h"

#include <boost/json.hpp>
#include <string>

#include "casemate/base/json.h"
#include "casemate/base/utf8.h"
#include "fuzz/fuzz.h"

namespace casemate::fuzz {
namespace {

enum class Verdict { fits, does_not, unknown };

Verdict verdict(const JsonSchema& schema, const boost::json::value& value) {
  const auto mismatch = schema.check(value);
  if (!mismatch) return Verdict::fits;
  return mismatch->kind == JsonMismatch::Kind::too_costly ? Verdict::unknown : Verdict::does_not;
}

// Of `schema` put inside `before` and `after`; unknown where that is no schema any more (too many,
// too deep).
Verdict wrapped(std::string_view before, const std::string& schema, std::string_view after,
                const boost::json::value& value) {
  try {
    return verdict(JsonSchema::parse(std::string(before) + schema + std::string(after)), value);
  } catch (const JsonSchemaError&) {
    return Verdict::unknown;
  }
}

}  // namespace

void fuzz_json_schema(std::string_view bytes) {
  Input input(bytes);
  const std::string text(input.until('\0'));
  std::optional<JsonSchema> schema;
  try {
    schema = JsonSchema::parse(text);
  } catch (const JsonSchemaError& error) {
    require(is_valid_utf8(error.what()) && std::string_view(error.what()).size() < 4096,
            "a refusal is text, and bounded");
    return;
  }
  require(schema->text() == text, "a schema keeps its text");
  boost::json::value value;
  try {
    value = parse_json(input.rest());
  } catch (const JsonError&) {
    return;
  }
  const auto mismatch = schema->check(value);
  if (mismatch) {
    const std::string sentence = mismatch->sentence("argument");
    require(is_valid_utf8(sentence) && !sentence.empty(), "a mismatch is a sentence");
    require(sentence.find('\n') == std::string::npos, "of one line");
  }
  const Verdict plain = verdict(*schema, value);
  require(plain == verdict(JsonSchema::parse(text), value), "a verdict does not change");
  // Names and references are of a whole document, so such a schema cannot stand inside another.
  if (plain == Verdict::unknown || text.find('$') != std::string::npos ||
      text.find('\\') != std::string::npos) {
    return;
  }
  const Verdict negated = wrapped(R"({"not":)", text, "}", value);
  require(negated == Verdict::unknown || negated != plain, "`not` turns a verdict");
  const Verdict all = wrapped(R"({"allOf":[)", text, "]}", value);
  require(all == Verdict::unknown || all == plain, "`allOf` of one is the one");
  const Verdict any = wrapped(R"({"anyOf":[false,)", text, "]}", value);
  require(any == Verdict::unknown || any == plain, "`anyOf` with false is the other");
  const Verdict one = wrapped(R"({"oneOf":[true,)", text, "]}", value);
  require(one == Verdict::unknown || one != plain, "`oneOf` with true is the opposite");
}

}  // namespace casemate::fuzz
