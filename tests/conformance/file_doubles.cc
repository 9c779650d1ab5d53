#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "casemate/base/utf8.h"
#include "casemate/core/errors.h"
#include "casemate/core/guest_path.h"
#include "tests/conformance/doubles.h"

namespace casemate::conformance_tests {
namespace {

using conformance::Suite;

// -- The naive roads that a double takes ----------------------------------------------------------

// Where a path leads, said without a look at links.
std::string naive(const std::string& path, const std::string& directory) {
  return normalise_guest_path(path.starts_with('/') ? path : directory + "/" + path);
}

std::string sh(Call& good, const std::string& line) {
  ExecRequest request;
  request.command = ShellLine{line};
  const ExecResult result = good.exec(request, {});
  if (result.exit_code != 0) throw SandboxFileError(line + ": " + result.stderr, ENOENT);
  return result.stdout;
}

std::string quoted(const std::string& path, const std::string& directory) {
  return shell_quote(naive(path, directory));
}

void naive_write(Call& good, const std::string& where, std::string_view bytes,
                 const char* redirection = ">") {
  std::string octal;
  for (const char byte : bytes) octal += fmt::format("\\{:03o}", static_cast<unsigned char>(byte));
  sh(good, fmt::format("mkdir -p \"$(dirname {0})\"; printf '{1}' {2} {0}", shell_quote(where),
                       octal, redirection));
}

SandboxEntry naive_stat(Call& good, const std::string& path, const std::string& directory) {
  const std::string where = quoted(path, directory);
  const std::string kind = sh(good, "stat -L -c %F " + where);
  SandboxEntry entry{.path = path, .kind = EntryKind::directory, .size_bytes = {}};
  if (kind.starts_with("regular")) {
    entry.kind = EntryKind::file;
    entry.size_bytes = std::stoull(sh(good, "stat -L -c %s " + where));
  }
  return entry;
}

std::vector<SandboxEntry> naive_list(Call& good, const std::string& path,
                                     const std::string& directory) {
  std::vector<SandboxEntry> entries;
  std::string names = sh(good, "ls -A " + quoted(path, directory) + "/");
  for (std::size_t at = 0; at < names.size();) {
    const std::size_t end = names.find('\n', at);
    const std::string name = names.substr(at, end - at);
    entries.push_back(naive_stat(good, path == "." ? name : path + "/" + name, directory));
    at = end + 1;
  }
  return entries;
}

// -- Where the first link of a path is
// -------------------------------------------------------------

enum class LinkAt { none, ancestor, directory, parent, leaf };

LinkAt first_link(Call& good, const std::string& path, const std::string& directory) {
  const std::string whole = naive(path, directory);
  const auto inside = guest_path_relative_to(whole, good.directory());
  if (!inside || inside->empty()) return LinkAt::none;
  for (std::size_t end = 0; end != std::string::npos;) {
    end = inside->find('/', end + 1);
    const std::string part = inside->substr(0, end);
    const auto entry = good.stat_file(part, good.directory(), {});
    if (!entry) return LinkAt::none;
    if (entry->kind != EntryKind::symlink) continue;
    const std::string at = good.directory() + "/" + part;
    if (at == directory) return LinkAt::directory;
    if (directory.starts_with(at + "/")) return LinkAt::ancestor;
    return at == whole ? LinkAt::leaf : LinkAt::parent;
  }
  return LinkAt::none;
}

bool is_outside(const std::string& path, const std::string& directory) {
  return !guest_path_relative_to(naive(path, directory), directory);
}

bool is_directory_itself(const std::string& path, const std::string& directory) {
  return naive(path, directory) == normalise_guest_path(directory);
}

EntryKind kind_of(Call& good, const std::string& path, const std::string& directory) {
  const auto entry = good.stat_file(path, directory, {});
  return entry ? entry->kind : EntryKind::other;
}

// -- The doubles
// -----------------------------------------------------------------------------------

using Write = decltype(Faults::write_file);
using Stat = decltype(Faults::stat_file);
using Read = decltype(Faults::read_file);
using Remove = decltype(Faults::remove);
using List = decltype(Faults::list_dir);

// What it writes goes through `change` first.
Write writes_changed(std::function<std::string(std::string)> change) {
  return [change](Call& good, const std::string& path, std::string_view bytes,
                  const std::string& directory) {
    good.write_file(path, change(std::string(bytes)), directory, {});
  };
}

Write writes_through(std::set<LinkAt> places) {
  return [places](Call& good, const std::string& path, std::string_view bytes,
                  const std::string& directory) {
    if (!places.contains(first_link(good, path, directory))) {
      return good.write_file(path, bytes, directory, {});
    }
    naive_write(good, naive(path, directory), bytes);
  };
}

Stat stats_through(std::set<LinkAt> places) {
  return [places](Call& good, const std::string& path, const std::string& directory) {
    return places.contains(first_link(good, path, directory)) ? naive_stat(good, path, directory)
                                                              : good.stat_file(path, directory, {});
  };
}

Read reads_through(std::set<LinkAt> places) {
  return [places](Call& good, const std::string& path, const std::string& directory) {
    return places.contains(first_link(good, path, directory))
               ? sh(good, "cat " + quoted(path, directory))
               : good.read_file(path, directory, 1 << 20, {});
  };
}

List lists_through(std::set<LinkAt> places) {
  return [places](Call& good, const std::string& path, const std::string& directory) {
    return places.contains(first_link(good, path, directory)) ? naive_list(good, path, directory)
                                                              : good.list_dir(path, directory, {});
  };
}

Remove removes_through(std::set<LinkAt> places) {
  return [places](Call& good, const std::string& path, const std::string& directory,
                  Recursive recursive) {
    const LinkAt place = first_link(good, path, directory);
    if (!places.contains(place)) return good.remove(path, directory, recursive, {});
    const std::string where = quoted(path, directory);
    sh(good, "rm -rf \"$(readlink -f " + where + ")\"; rm -f " + where);
  };
}

// Replaces what `applies` picks; the rest is the good one's.
Write writes_when(std::function<bool(Call&, const std::string&, const std::string&)> applies,
                  Write instead) {
  return [applies, instead](Call& good, const std::string& path, std::string_view bytes,
                            const std::string& directory) {
    if (applies(good, path, directory)) return instead(good, path, bytes, directory);
    good.write_file(path, bytes, directory, {});
  };
}

Remove removes_when(
    std::function<bool(Call&, const std::string&, const std::string&, Recursive)> applies,
    std::function<void(Call&, const std::string&)> instead) {
  return [applies, instead](Call& good, const std::string& path, const std::string& directory,
                            Recursive recursive) {
    if (!applies(good, path, directory, recursive)) {
      return good.remove(path, directory, recursive, {});
    }
    instead(good, quoted(path, directory));
  };
}

bool outside(Call&, const std::string& path, const std::string& directory) {
  return is_outside(path, directory) && path.find('\\') == std::string::npos;
}
bool itself(Call&, const std::string& path, const std::string& directory) {
  return is_directory_itself(path, directory);
}

std::string latin_1(std::string text) {
  if (!is_valid_utf8(text)) return text;
  std::string bytes;
  for (const char32_t point : decode_utf8(text)) {
    bytes += point < 256 ? static_cast<char>(point) : '?';
  }
  return bytes;
}

std::string unix_lines(std::string text) {
  if (!is_valid_utf8(text)) return text;
  std::erase(text, '\r');
  return text;
}

std::string stripped(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

void no_parents(Call& good, const std::string& path, std::string_view bytes,
                const std::string& directory) {
  const std::string parent = path.substr(0, path.rfind('/'));
  if (path.find('/') != std::string::npos && first_link(good, path, directory) == LinkAt::none &&
      !is_outside(path, directory) && !good.stat_file(parent, directory, {})) {
    throw SandboxFileError("no such directory", ENOENT);
  }
  good.write_file(path, bytes, directory, {});
}

bool nothing_there(Call& good, const std::string& path, const std::string& directory) {
  return !is_outside(path, directory) && first_link(good, path, directory) == LinkAt::none &&
         !good.stat_file(path, directory, {});
}

bool has_entries(Call& good, const std::string& path, const std::string& directory) {
  return !good.list_dir(path, directory, {}).empty();
}

bool inner_directory(Call& good, const std::string& path, const std::string& directory) {
  return !is_outside(path, directory) && !is_directory_itself(path, directory) &&
         first_link(good, path, directory) == LinkAt::none &&
         kind_of(good, path, directory) == EntryKind::directory;
}

bool plain_file(Call& good, const std::string& path, const std::string& directory) {
  return !is_outside(path, directory) && first_link(good, path, directory) == LinkAt::none &&
         kind_of(good, path, directory) == EntryKind::file;
}

const std::set<LinkAt> kEverywhere{LinkAt::ancestor, LinkAt::directory, LinkAt::parent,
                                   LinkAt::leaf};

void add_writers(std::vector<Double>& all) {
  const auto add = [&](std::string name, Write write) {
    all.push_back({std::move(name), {Suite::files_in}, {.write_file = std::move(write)}});
  };
  add("writes nothing", [](Call&, const auto&, std::string_view, const auto&) {});
  add("writes without the last newline", writes_changed(stripped));
  add("writes bytes that are no UTF-8 as U+FFFD",
      writes_changed([](std::string bytes) { return replace_invalid_utf8(bytes); }));
  add("writes text as Latin-1", writes_changed(latin_1));
  add("writes lines with other ends", writes_changed(unix_lines));
  add("appends", writes_when(plain_file, [](Call& good, const std::string& path,
                                            std::string_view bytes, const std::string& directory) {
        naive_write(good, naive(path, directory), bytes, ">>");
      }));
  add("makes no parents", no_parents);
  add("writes outside",
      writes_when(outside, [](Call& good, const std::string& path, std::string_view bytes,
                              const std::string& directory) {
        naive_write(good, naive(path, directory), bytes);
      }));
  add("refuses a path outside after it wrote there",
      writes_when(outside, [](Call& good, const std::string& path, std::string_view bytes,
                              const std::string& directory) {
        naive_write(good, naive(path, directory), bytes);
        throw SandboxPathRefused("outside");
      }));
  add("refuses a path outside as a bad argument",
      writes_when(outside, [](Call&, const auto&, std::string_view, const auto&) {
        throw InvalidArgument("outside");
      }));
  add("writes through links in the parents", writes_through({LinkAt::parent}));
  add("writes through a link in the last place", writes_through({LinkAt::leaf}));
  add("writes into a working directory that is a link", writes_through({LinkAt::directory}));
  add("writes into a working directory below a link", writes_through({LinkAt::ancestor}));
  add("writes through any link", writes_through(kEverywhere));
  add("takes a write to the working directory quietly",
      writes_when(itself, [](Call&, const auto&, std::string_view, const auto&) {}));
  add("reads a backslash as a separator when it writes",
      [](Call& good, std::string path, std::string_view bytes, const std::string& directory) {
        std::ranges::replace(path, '\\', '/');
        good.write_file(path, bytes, directory, {});
      });
}

void add_readers(std::vector<Double>& all) {
  const auto add = [&](std::string name, Faults faults) {
    all.push_back({std::move(name), {Suite::files_out}, std::move(faults)});
  };
  add("reads nothing", {.read_file = [](Call& good, const auto& path, const auto& directory) {
        good.read_file(path, directory, 1 << 20, {});
        return std::string();
      }});
  // The one reader whose fault a probe of the other suite meets.
  all.back().suites.insert(Suite::files_in);
  add("vouches for no size", {.stat_file = [](Call& good, const auto& path, const auto& directory) {
        auto entry = good.stat_file(path, directory, {});
        if (entry) entry->size_bytes.reset();
        return entry;
      }});
  add("tells what a link leads to", {.stat_file = stats_through({LinkAt::leaf})});
  add("vouches for the size of a link",
      {.stat_file = [](Call& good, const auto& path, const auto& directory) {
        auto entry = good.stat_file(path, directory, {});
        if (entry && entry->kind == EntryKind::symlink) entry->size_bytes = 3;
        return entry;
      }});
  add("reads what a link leads to", {.read_file = reads_through({LinkAt::leaf})});
  add("finds no file where a link is",
      {.read_file = [](Call& good, const auto& path, const auto& directory) {
        if (first_link(good, path, directory) == LinkAt::leaf) {
          throw SandboxFileError("none", ENOENT);
        }
        return good.read_file(path, directory, 1 << 20, {});
      }});
  add("tells of files through links in the parents",
      {.stat_file = stats_through({LinkAt::parent})});
  add("reads through links in the parents", {.read_file = reads_through({LinkAt::parent})});
  add("tells of files in a working directory that is a link",
      {.stat_file = stats_through({LinkAt::directory})});
  add("reads in a working directory that is a link",
      {.read_file = reads_through({LinkAt::directory})});
  add("tells of files in a working directory below a link",
      {.stat_file = stats_through({LinkAt::ancestor})});
  add("reads in a working directory below a link",
      {.read_file = reads_through({LinkAt::ancestor})});
  add("reads through any link", {.read_file = reads_through(kEverywhere)});
  const auto missing_not_enotdir = [](const SandboxFileError& error) {
    if (error.error_number() != ENOTDIR) throw error;
  };
  add("finds nothing below a file",
      {.stat_file = [=](Call& good, const auto& path,
                        const auto& directory) -> std::optional<SandboxEntry> {
        try {
          return good.stat_file(path, directory, {});
        } catch (const SandboxFileError& error) {
          missing_not_enotdir(error);
          return std::nullopt;
        }
      }});
}

void add_listers(std::vector<Double>& all) {
  const auto add = [&](std::string name, List list) {
    all.push_back({std::move(name), {Suite::files_out}, {.list_dir = std::move(list)}});
  };
  add("lists what a link leads to", lists_through({LinkAt::leaf}));
  add("lists through links in the parents", lists_through({LinkAt::parent}));
  add("lists in a working directory below a link", lists_through({LinkAt::ancestor}));
  add("lists through any link", lists_through(kEverywhere));
  add("lists links as what they lead to",
      [](Call& good, const std::string& path, const std::string& directory) {
        good.list_dir(path, directory, {});
        return naive_list(good, path, directory);
      });
  add("lists no links", [](Call& good, const std::string& path, const std::string& directory) {
    auto entries = good.list_dir(path, directory, {});
    std::erase_if(entries, [](const auto& entry) { return entry.kind == EntryKind::symlink; });
    return entries;
  });
  add("lists in no order", [](Call& good, const std::string& path, const std::string& directory) {
    auto entries = good.list_dir(path, directory, {});
    std::ranges::reverse(entries);
    return entries;
  });
}

void add_removers(std::vector<Double>& all) {
  const auto add = [&](std::string name, Remove remove) {
    all.push_back({std::move(name), {Suite::files_delete}, {.remove = std::move(remove)}});
  };
  const auto file = [](Call& good, const auto& path, const auto& directory, Recursive) {
    return plain_file(good, path, directory);
  };
  add("removes no file", removes_when(file, [](Call&, const std::string&) {}));
  add("removes the files beside a file, too",
      removes_when(file, [](Call& good, const std::string& where) {
        sh(good, "rm -rf \"$(dirname " + where + ")\"/*");
      }));
  add("fails for what is not there",
      removes_when([](Call& good, const auto& path, const auto& directory,
                      Recursive) { return nothing_there(good, path, directory); },
                   [](Call&, const std::string&) { throw SandboxFileError("none", ENOENT); }));
  add("removes what a link leads to", removes_through({LinkAt::leaf}));
  add("removes no link",
      removes_when([](Call& good, const auto& path, const auto& directory,
                      Recursive) { return first_link(good, path, directory) == LinkAt::leaf; },
                   [](Call&, const std::string&) {}));
  add("removes through links in the parents", removes_through({LinkAt::parent}));
  add("removes through any link", removes_through(kEverywhere));
  add("removes a full directory without recursive",
      removes_when(
          [](Call& good, const auto& path, const auto& directory, Recursive recursive) {
            return recursive == Recursive::no && inner_directory(good, path, directory) &&
                   has_entries(good, path, directory);
          },
          [](Call& good, const std::string& where) { sh(good, "rm -rf " + where); }));
  add("removes an empty directory without recursive",
      removes_when(
          [](Call& good, const auto& path, const auto& directory, Recursive recursive) {
            return recursive == Recursive::no && inner_directory(good, path, directory) &&
                   !has_entries(good, path, directory);
          },
          [](Call& good, const std::string& where) { sh(good, "rmdir " + where); }));
  const auto tree = [](Call& good, const auto& path, const auto& directory, Recursive recursive) {
    return recursive == Recursive::yes && inner_directory(good, path, directory);
  };
  add("removes one level of a tree", removes_when(tree, [](Call& good, const std::string& where) {
        sh(good, "rm -f " + where + "/* 2>/dev/null; rmdir " + where + " 2>/dev/null || true");
      }));
  add("follows links within a tree", removes_when(tree, [](Call& good, const std::string& where) {
        sh(good, "for each in " + where +
                     "/*; do rm -rf \"$(readlink -f \"$each\")\"; done; rm -rf " + where);
      }));
  add("takes a removal of the working directory quietly",
      removes_when([](Call&, const auto& path, const auto& directory,
                      Recursive) { return is_directory_itself(path, directory); },
                   [](Call&, const std::string&) {}));
  add("empties the working directory",
      removes_when([](Call&, const auto& path, const auto& directory,
                      Recursive) { return is_directory_itself(path, directory); },
                   [](Call& good, const std::string& where) {
                     sh(good, "rm -rf " + where + "/*");
                     throw SandboxPathRefused("the working directory itself");
                   }));
  add("removes outside",
      removes_when([](Call& good, const auto& path, const auto& directory,
                      Recursive) { return outside(good, path, directory); },
                   [](Call& good, const std::string& where) { sh(good, "rm -rf " + where); }));
}

}  // namespace

std::vector<Double> file_doubles() {
  std::vector<Double> all;
  add_writers(all);
  add_readers(all);
  add_listers(all);
  add_removers(all);
  return all;
}

}  // namespace casemate::conformance_tests
