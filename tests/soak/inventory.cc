#include "tests/soak/inventory.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

namespace casemate::soak {
namespace {

namespace fs = std::filesystem;

// Of a file of /proc, as it was when it was opened; the first `heads` are left out.
std::vector<std::string> lines_of(const std::string& path, int heads) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (heads-- <= 0) lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> fields_of(const std::string& line) {
  std::istringstream fields(line);
  return {std::istream_iterator<std::string>(fields), {}};
}

bool names_one_of(std::string_view text, const std::vector<fs::path>& directories) {
  return std::ranges::any_of(directories, [&](const fs::path& directory) {
    return text.find(directory.native()) != std::string_view::npos;
  });
}

// A table of sockets in /proc/net, and in which of its columns what stands.
struct Table {
  std::string_view name;
  std::size_t inode;
  // What a reader knows one by: addresses, or the type and the path or abstract name.
  std::array<std::size_t, 2> shown;
  // 0: the table does not say.
  std::size_t user;
};

constexpr Table kTables[] = {
    {.name = "tcp", .inode = 9, .shown = {1, 2}, .user = 7},
    {.name = "tcp6", .inode = 9, .shown = {1, 2}, .user = 7},
    {.name = "udp", .inode = 9, .shown = {1, 2}, .user = 7},
    {.name = "udp6", .inode = 9, .shown = {1, 2}, .user = 7},
    {.name = "raw", .inode = 9, .shown = {1, 2}, .user = 7},
    {.name = "raw6", .inode = 9, .shown = {1, 2}, .user = 7},
    {.name = "packet", .inode = 8, .shown = {2, 3}, .user = 7},
    {.name = "netlink", .inode = 9, .shown = {1, 2}, .user = 0},
    {.name = "unix", .inode = 6, .shown = {4, 7}, .user = 0},
};

// How many of this network namespace are in that table for somebody; unknown where it is not said.
std::optional<int> in_use(std::string_view table) {
  std::string label(table);
  for (char& letter : label) letter = static_cast<char>(std::toupper(letter));
  for (const char* path : {"/proc/self/net/sockstat", "/proc/self/net/sockstat6"}) {
    for (const std::string& line : lines_of(path, 0)) {
      const std::vector<std::string> fields = fields_of(line);
      if (fields.size() > 2 && fields[0] == label + ":" && fields[1] == "inuse") {
        return std::stoi(fields[2]);
      }
    }
  }
  return std::nullopt;
}

bool counts(const Table& table, const std::vector<std::string>& fields,
            const std::vector<fs::path>& directories) {
  if (table.user != 0) return fields[table.user] == std::to_string(geteuid());
  return table.name == "unix" && fields.size() > 7 && names_one_of(fields[7], directories);
}

}  // namespace

Inventory files_below(const std::vector<fs::path>& directories) {
  Inventory found;
  for (const fs::path& directory : directories) {
    for (auto entry = fs::recursive_directory_iterator(directory);
         entry != fs::recursive_directory_iterator(); ++entry) {
      if (entry->path().filename() == "locks") entry.disable_recursion_pending();
      found.insert("file " + entry->path().native());
    }
  }
  return found;
}

Inventory mounts(Namespaces namespaces, const std::vector<fs::path>& directories) {
  Inventory found;
  for (const std::string& line : lines_of("/proc/self/mountinfo", 0)) {
    if (namespaces == Namespaces::own || names_one_of(line, directories)) {
      found.insert("mount " + line);
    }
  }
  return found;
}

Inventory sockets(Namespaces namespaces, const std::vector<fs::path>& directories) {
  Inventory found;
  for (const Table& table : kTables) {
    // The kernel looks through those of all namespaces, for milliseconds.
    if (namespaces == Namespaces::own && table.name.starts_with("tcp") && in_use(table.name) == 0) {
      continue;
    }
    for (const std::string& line : lines_of("/proc/self/net/" + std::string(table.name), 1)) {
      const std::vector<std::string> fields = fields_of(line);
      if (fields.size() <= table.inode || fields[table.inode] == "0") continue;
      if (namespaces == Namespaces::shared && !counts(table, fields, directories)) continue;
      std::string entry = "socket " + fields[table.inode] + " of " + std::string(table.name);
      for (const std::size_t column : table.shown) {
        if (column < fields.size()) entry += " " + fields[column];
      }
      found.insert(std::move(entry));
    }
  }
  return found;
}

Inventory descriptors() {
  Inventory found;
  const std::unique_ptr<DIR, int (*)(DIR*)> open_ones(opendir("/proc/self/fd"), closedir);
  if (!open_ones) throw std::system_error(errno, std::generic_category(), "/proc/self/fd");
  while (const dirent* entry = readdir(open_ones.get())) {
    const std::string number = entry->d_name;
    if (number.starts_with('.') || std::stoi(number) == dirfd(open_ones.get())) continue;
    std::error_code gone;
    found.insert("descriptor " + number + " of " +
                 fs::read_symlink("/proc/self/fd/" + number, gone).native());
  }
  return found;
}

Inventory take_inventory(Namespaces namespaces, const std::vector<fs::path>& directories) {
  Inventory all = files_below(directories);
  all.merge(mounts(namespaces, directories));
  all.merge(sockets(namespaces, directories));
  all.merge(descriptors());
  return all;
}

std::string differences(const Inventory& before, const Inventory& after) {
  std::string text;
  for (const std::string& each : after) {
    if (!before.contains(each)) text += "left: " + each + "\n";
  }
  for (const std::string& each : before) {
    if (!after.contains(each) && !each.starts_with("mount ")) text += "missing: " + each + "\n";
  }
  return text;
}

}  // namespace casemate::soak
