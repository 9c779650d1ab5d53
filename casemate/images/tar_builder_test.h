#pragma once

// Archives and images for tests, byte by byte: what no honest tool would write can be written too.

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "casemate/base/digest.h"
#include "casemate/images/documents.h"

namespace casemate::images {

class TarBuilder {
 public:
  static constexpr std::size_t kBlock = 512;

  struct Options {
    unsigned mode = 0644;
    std::uint64_t modified = 1000000000;
    // What the header says; the content's own size where this is negative.
    std::int64_t stated_size = -1;
  };

  TarBuilder& entry(char type, std::string_view name, std::string_view content = "",
                    std::string_view target = "") {
    return entry(type, name, content, target, Options{});
  }
  TarBuilder& entry(char type, std::string_view name, std::string_view content,
                    std::string_view target, Options options) {
    std::string header(kBlock, '\0');
    const auto put = [&](std::size_t at, std::string_view text) {
      header.replace(at, text.size(), text);
    };
    put(0, name.substr(0, 100));
    put(100, fmt::format("{:07o}", options.mode));
    put(108, "0000000");
    put(116, "0000000");
    const std::uint64_t size =
        options.stated_size >= 0 ? static_cast<std::uint64_t>(options.stated_size) : content.size();
    put(124, fmt::format("{:011o}", size));
    put(136, fmt::format("{:011o}", options.modified));
    put(148, "        ");
    header[156] = type;
    put(157, target.substr(0, 100));
    put(257, std::string_view("ustar\0"
                              "00",
                              8));
    unsigned sum = 0;
    for (const char byte : header) sum += static_cast<unsigned char>(byte);
    put(148, fmt::format("{:06o}", sum));
    header[154] = '\0';
    bytes_ += header;
    bytes_ += content;
    if (content.size() % kBlock != 0) bytes_.append(kBlock - content.size() % kBlock, '\0');
    return *this;
  }
  TarBuilder& file(std::string_view name, std::string_view content = "x", unsigned mode = 0644) {
    return entry('0', name, content, "", {.mode = mode});
  }
  TarBuilder& directory(std::string_view name) { return entry('5', name, "", "", {.mode = 0755}); }
  TarBuilder& symbolic_link(std::string_view name, std::string_view target) {
    return entry('2', name, "", target);
  }
  TarBuilder& hard_link(std::string_view name, std::string_view target) {
    return entry('1', name, "", target);
  }
  // Gives the entry behind it what no ustar header holds.
  TarBuilder& pax(const std::vector<std::pair<std::string, std::string>>& records) {
    std::string content;
    for (const auto& [key, value] : records) {
      const std::size_t bare = key.size() + value.size() + 3;
      std::size_t length = bare + 1;
      while (std::to_string(length).size() + bare != length) ++length;
      content += fmt::format("{} {}={}\n", length, key, value);
    }
    return entry('x', "PaxHeader", content);
  }

  // Without the archive's end.
  const std::string& open_end() const { return bytes_; }
  std::string finish() const { return bytes_ + std::string(2 * kBlock, '\0'); }

 private:
  std::string bytes_;
};

inline std::string gzip(std::string_view bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  std::string in(bytes);
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string zstd(std::string_view bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 1));
  return out;
}

inline std::string digest_of(std::string_view bytes) { return "sha256:" + sha256_hex(bytes); }

inline void write_test_file(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

// An image of layers, each a tar, plain or compressed, and what its config says.
struct TestImage {
  std::vector<std::string> layers;
  // The same, uncompressed.
  std::vector<std::string> tars;
  std::vector<std::string> environment;

  TestImage& add(std::string tar) {
    layers.push_back(tar);
    tars.push_back(std::move(tar));
    return *this;
  }
  TestImage& add(std::string compressed, std::string tar) {
    layers.push_back(std::move(compressed));
    tars.push_back(std::move(tar));
    return *this;
  }

  std::string config() const {
    std::string ids;
    for (const std::string& tar : tars) {
      ids += fmt::format("{}\"{}\"", ids.empty() ? "" : ",", digest_of(tar));
    }
    std::string variables;
    for (const std::string& variable : environment) {
      variables += fmt::format("{}\"{}\"", variables.empty() ? "" : ",", variable);
    }
    const Platform platform = this_platform();
    return fmt::format(R"({{"architecture":"{}","os":"{}","config":{{"Env":[{}]}},)"
                       R"("rootfs":{{"type":"layers","diff_ids":[{}]}}}})",
                       platform.architecture, platform.os, variables, ids);
  }

  // Returns the id.
  std::string write_oci_layout(const std::filesystem::path& path,
                               std::string_view tag = "latest") const {
    const auto put = [&](std::string_view bytes) {
      const std::string digest = digest_of(bytes);
      write_test_file(path / "blobs" / "sha256" / digest.substr(7), bytes);
      return fmt::format(R"("digest":"{}","size":{})", digest, bytes.size());
    };
    std::string entries;
    for (const std::string& layer : layers) {
      entries += fmt::format(R"({}{{"mediaType":"application/vnd.oci.image.layer.v1.tar",{}}})",
                             entries.empty() ? "" : ",", put(layer));
    }
    const std::string manifest = fmt::format(
        R"({{"schemaVersion":2,"config":{{"mediaType":"application/vnd.oci.image.config.v1+json",)"
        R"({}}},"layers":[{}]}})",
        put(config()), entries);
    write_test_file(path / "oci-layout", R"({"imageLayoutVersion":"1.0.0"})");
    write_test_file(path / "index.json",
                    fmt::format(R"({{"schemaVersion":2,"manifests":[{{"mediaType":)"
                                R"("application/vnd.oci.image.manifest.v1+json",{},"annotations":)"
                                R"({{"org.opencontainers.image.ref.name":"{}"}}}}]}})",
                                put(manifest), tag));
    return digest_of(config());
  }

  // As `docker save` wrote it before version 25; a layer that is there twice is a link.
  std::string old_docker_archive() const {
    TarBuilder tar;
    std::string names;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::string name = fmt::format("layer{}/layer.tar", i);
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ",", name);
      tar.directory(fmt::format("layer{}/", i));
      bool linked = false;
      for (std::size_t before = 0; before < i && !linked; ++before) {
        if (layers[before] != layers[i]) continue;
        tar.symbolic_link(name, fmt::format("../layer{}/layer.tar", before));
        linked = true;
      }
      if (!linked) tar.file(name, layers[i]);
    }
    const std::string hex = sha256_hex(config());
    tar.file(hex + ".json", config());
    tar.file(
        "manifest.json",
        fmt::format(R"([{{"Config":"{}.json","RepoTags":["a:b"],"Layers":[{}]}}])", hex, names));
    return tar.finish();
  }

  // As since then.
  std::string new_docker_archive() const {
    TarBuilder tar;
    tar.directory("blobs/").directory("blobs/sha256/");
    std::string names;
    for (const std::string& layer : layers) {
      const std::string name = "blobs/sha256/" + sha256_hex(layer);
      if (names.find(name) == std::string::npos) tar.file(name, layer);
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ",", name);
    }
    const std::string name = "blobs/sha256/" + sha256_hex(config());
    tar.file(name, config());
    tar.file("index.json", "{}")
        .file("manifest.json",
              fmt::format(R"([{{"Config":"{}","RepoTags":null,"Layers":[{}]}}])", name, names));
    tar.file("oci-layout", R"({"imageLayoutVersion":"1.0.0"})");
    return tar.finish();
  }
};

}  // namespace casemate::images
