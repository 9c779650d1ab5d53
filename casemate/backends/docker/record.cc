#include "casemate/backends/docker/record.h"

#include <boost/json.hpp>
#include <exception>

#include "casemate/base/json.h"
#include "casemate/core/errors.h"

namespace casemate::docker {
namespace {

namespace json = boost::json;

constexpr std::int64_t kVersion = 1;

json::object texts(const std::map<std::string, std::string>& map) {
  json::object object;
  for (const auto& [name, value] : map) object[name] = value;
  return object;
}

std::map<std::string, std::string> texts(const json::value& value) {
  std::map<std::string, std::string> map;
  for (const auto& [name, each] : value.as_object()) {
    map[std::string(name)] = std::string(each.as_string());
  }
  return map;
}

std::string text(const json::object& object, std::string_view name) {
  return std::string(object.at(name).as_string());
}

}  // namespace

std::string encode_record(const Record& record) {
  json::array limits;
  for (const Limit limit : record.limits_not_held) limits.emplace_back(to_string(limit));
  // Bytes that are no UTF-8 become U+FFFD: of the key that shows in listings alone, since the
  // labels tell whose it is.
  return serialise_json(json::object{{"version", kVersion},
                                     {"scope", record.key.scope},
                                     {"thread", record.key.thread_id},
                                     {"agent", record.key.agent_dir},
                                     {"kind", record.kind},
                                     {"place", record.place},
                                     {"home", record.home},
                                     {"fingerprint", record.fingerprint},
                                     {"image", record.image},
                                     {"environment", texts(record.environment)},
                                     {"work_dir", record.work_dir},
                                     {"labels", texts(record.labels)},
                                     {"limits_not_held", std::move(limits)},
                                     {"created", record.created}});
}

std::optional<Record> decode_record(std::string_view bytes) {
  Record record;
  json::value parsed;
  try {
    parsed = parse_json(bytes);
    const json::object& object = parsed.as_object();
    record.key = {text(object, "scope"), text(object, "thread"), text(object, "agent")};
    record.kind = text(object, "kind");
    record.place = text(object, "place");
    record.home = text(object, "home");
    if (!is_place_name(record.place)) return std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
  try {
    const json::object& object = parsed.as_object();
    record.created = object.at("created").to_number<std::uint64_t>();
    record.labels = texts(object.at("labels"));
    record.environment = texts(object.at("environment"));
    record.image = text(object, "image");
    record.work_dir = text(object, "work_dir");
    for (const json::value& limit : object.at("limits_not_held").as_array()) {
      record.limits_not_held.insert(parse_limit(std::string(limit.as_string())));
    }
    if (object.at("version").to_number<std::int64_t>() == kVersion) {
      record.fingerprint = text(object, "fingerprint");
    }
  } catch (const std::exception&) {
    record.fingerprint.clear();
  }
  return record;
}

bool is_place_name(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace casemate::docker
