// SPDX-License-Identifier: Apache-2.0
#include "weft/safetensors.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/map.hpp>
#include <set>
#include <unordered_map>

#include "checkpoint/blocks.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/store.h"

namespace weft {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

static constexpr int64_t kLengthBytes = 8;
// A gap shorter than a page comes from the disk anyway; a read through it saves a system call.
static constexpr int64_t kLargestGap = 4096;
static constexpr int64_t kLargestWindow = int64_t{1} << 18;

/// Gathers the box's runs, in the order of the file, into reads of a window.
static void read_box_of_file(const File& file, const SafetensorsEntry& entry, const Box& box,
                             std::byte* into) {
  const BoxRuns runs(entry.shape, box, entry.dtype);
  const auto run_bytes = static_cast<size_t>(runs.bytes());
  std::vector<std::byte> window;
  for (int64_t first = 0, last = 0; first < runs.count(); first = last) {
    const int64_t begin = runs.start(first);
    int64_t end = begin + runs.bytes();
    for (last = first + 1; last < runs.count(); ++last) {
      const int64_t start = runs.start(last);
      if (start - end >= kLargestGap || start + runs.bytes() - begin > kLargestWindow) break;
      end = start + runs.bytes();
    }
    const auto bytes = static_cast<size_t>(end - begin);
    if (bytes == static_cast<size_t>(last - first) * run_bytes) {
      file.read(entry.offset + begin, {into, bytes});
      into += bytes;
      continue;
    }
    window.resize(bytes);
    file.read(entry.offset + begin, window);
    for (int64_t run = first; run < last; ++run, into += run_bytes) {
      std::memcpy(into, window.data() + (runs.start(run) - begin), run_bytes);
    }
  }
}

struct SafetensorsFile::Body {
  /// Empty: the file is opened for each read.
  std::optional<File> kept;
  const std::string path;
  const int64_t size;
  const std::pair<uint64_t, uint64_t> identity;
  mutable std::atomic<int64_t> bytes_read{0};
  SafetensorsHeader header;
  std::unordered_map<std::string_view, const SafetensorsEntry*> by_name;

  Body(const File& file, bool keeps_open)
      : path(file.path()), size(file.size()), identity(file.identity()) {
    const int64_t length = header_length(file);
    const std::string text = file.text(kLengthBytes, length);
    header = parse_safetensors_header(path, text, kLengthBytes + length, file.size());
    for (const auto& entry : header.entries) by_name.emplace(entry.name, &entry);
    bytes_read = file.bytes_read();
    if (keeps_open) kept = file;
  }

  Body(const File& file, std::vector<SafetensorsEntry> entries)
      : kept(file), path(file.path()), size(file.size()), identity(file.identity()) {
    header.entries = std::move(entries);
    for (const auto& entry : header.entries) by_name.emplace(entry.name, &entry);
  }

  template <class Use> void read(const Use& use) const {
    if (kept) return use(*kept);
    const File file("safetensors", path);
    if (file.size() != size || file.identity() != identity) {
      fail_call("open", "safetensors: ", path, " is another file of ", file.size(),
                " bytes, expected the one of ", size, " bytes whose header was read");
    }
    use(file);
    bytes_read += file.bytes_read();
  }

  static int64_t header_length(const File& file) {
    const auto& path = file.path();
    if (file.size() < kLengthBytes) {
      fail("safetensors: ", path, " has ", file.size(), " bytes, expected a header of at least 8");
    }
    uint64_t length = 0;
    file.read(0, std::as_writable_bytes(std::span(&length, 1)));
    if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
      fail("safetensors: ", path, ": the header would have ", length, " bytes; at most ",
           kMaxHeaderBytes, " are allowed (is this a safetensors file?)");
    }
    if (static_cast<int64_t>(length) > file.size() - kLengthBytes) {
      fail("safetensors: ", path, ": the header would have ", length, " bytes, but only ",
           file.size() - kLengthBytes, " follow; the file may be cut short");
    }
    return static_cast<int64_t>(length);
  }
};

SafetensorsFile::SafetensorsFile(const std::string& path) : SafetensorsFile(path, true) {}

SafetensorsFile::SafetensorsFile(const std::string& path, bool keeps_open)
    : body_(std::make_shared<const Body>(File("safetensors", path), keeps_open)) {}

SafetensorsFile::SafetensorsFile(const File& file, std::vector<SafetensorsEntry> entries)
    : body_(std::make_shared<const Body>(file, std::move(entries))) {}

const std::string& SafetensorsFile::path() const { return body_->path; }

const std::vector<SafetensorsEntry>& SafetensorsFile::entries() const {
  return body_->header.entries;
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return body_->header.metadata;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = body_->by_name.find(name);
  return found == body_->by_name.end() ? nullptr : found->second;
}

const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  const SafetensorsEntry* found = find(name);
  if (!found) {
    fail("safetensors: ", path(), ": tensor ", in_quotes(name), " is missing among ",
         entries().size(), " others");
  }
  return *found;
}

void SafetensorsFile::read(const SafetensorsEntry& entry, int64_t offset,
                           std::span<std::byte> into) const {
  const auto bytes = static_cast<int64_t>(into.size());
  if (offset < 0 || offset > entry.bytes || bytes > entry.bytes - offset) {
    fail("safetensors: ", path(), ": tensor ", in_quotes(entry.name), " has ", entry.bytes,
         " bytes; asked for ", bytes, " from ", offset, " on");
  }
  body_->read([&](const File& file) { file.read(entry.offset + offset, into); });
}

void SafetensorsFile::read_box(const SafetensorsEntry& entry, const Box& box, void* into) const {
  bool inside = box.offset.ndim() == entry.shape.ndim() && box.shape.ndim() == entry.shape.ndim();
  for (int dim = 0; inside && dim < entry.shape.ndim(); ++dim) {
    inside = box.offset[dim] >= 0 && box.shape[dim] >= 0 && box.offset[dim] <= entry.shape[dim] &&
             box.shape[dim] <= entry.shape[dim] - box.offset[dim];
  }
  if (!inside) {
    fail("safetensors: ", path(), ": tensor ", in_quotes(entry.name), " of shape ", entry.shape,
         " has no box of ", box.shape, " at ", box.offset);
  }
  body_->read(
      [&](const File& file) { read_box_of_file(file, entry, box, static_cast<std::byte*>(into)); });
}

int64_t SafetensorsFile::bytes_read() const {
  return body_->kept ? body_->kept->bytes_read() : body_->bytes_read.load();
}

static constexpr const char* kSingleFile = "model.safetensors";
static constexpr const char* kIndexFile = "model.safetensors.index.json";
/// A process has 1,024 descriptors by default, shared by all of its ranks.
static constexpr size_t kMostOpen = 32;

static nlohmann::json weight_map_of(const std::string& index) {
  auto root = nlohmann::json::parse(read_json("safetensors index", index));
  const auto found = root.find("weight_map");
  if (found == root.end() || !found->is_object()) {
    fail("safetensors index: ", index, ": object \"weight_map\" is missing");
  }
  for (const auto& [name, file] : found->items()) {
    if (!file.is_string()) {
      fail("safetensors index: ", index, ": the file of tensor ", in_quotes(name), " is ",
           file.type_name(), ", expected string");
    }
    // An untrusted index must not name other paths.
    const auto& plain = file.get_ref<const std::string&>();
    if (printable(plain) == plain && plain.find_first_of("/\\") == plain.npos &&
        plain.ends_with(".safetensors")) {
      continue;
    }
    fail("safetensors index: ", index, ": the file name ", in_quotes(plain),
         " is not a plain *.safetensors name inside the directory");
  }
  return std::move(*found);
}

/// Refuses files of PyTorch, which are programs.
static void check_no_pickle(const std::string& path) {
  static constexpr const char* kEnds[] = {".bin", ".bin.index.json", ".pt", ".pth"};
  if (std::ranges::none_of(kEnds, [&](const char* end) { return path.ends_with(end); })) return;
  fail(
      "safetensors: ", printable(path), " is a file of PyTorch, expected .safetensors; convert it ",
      "with: python -c \"import torch, safetensors.torch as s; s.save_file({k: v.clone() for k, v ",
      "in torch.load('", printable(path), "', weights_only=True).items()}, 'model.safetensors')\"");
}

TensorFiles::TensorFiles(const std::string& path) : path_(path) {
  namespace fs = std::filesystem;
  check_no_pickle(path);
  const bool directory = path_is_directory(path);
  const std::string single = directory ? (fs::path(path) / kSingleFile).string() : path;
  const std::string index = directory ? (fs::path(path) / kIndexFile).string() : path;
  if (directory && !path_exists(single) && !path_exists(index)) {
    for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
      if (path_exists(fs::path(path) / name)) check_no_pickle(path + "/" + name);
    }
    fail("safetensors: ", path, " holds no model, expected ", kSingleFile, " or ", kIndexFile);
  }
  if (directory ? !path_exists(single) : path.ends_with(".json")) {
    open_index(index);
  } else {
    files_.emplace_back(single);
    for (const auto& entry : files_[0].entries()) places_.emplace(entry.name, Place{0, &entry});
  }
  if (places_.empty()) fail("safetensors: ", printable(path), ": it holds no tensors");
}

void TensorFiles::open_index(const std::string& index) {
  const auto weight_map = weight_map_of(index);
  const auto directory = std::filesystem::path(index).parent_path();
  std::set<std::string_view> names;
  for (const auto& file : weight_map) names.insert(file.get_ref<const std::string&>());
  const bool keeps_open = names.size() <= kMostOpen;
  std::map<std::string, size_t> opened;
  for (const auto& [name, value] : weight_map.items()) {
    const auto& file = value.get_ref<const std::string&>();
    const auto [at, is_new] = opened.try_emplace(file, files_.size());
    if (is_new) files_.push_back(SafetensorsFile((directory / file).string(), keeps_open));
    const SafetensorsEntry* entry = files_[at->second].find(name);
    if (!entry) {
      fail("safetensors index: ", index, ": it places tensor ", in_quotes(name), " in ",
           printable(file), ", which does not hold it");
    }
    places_.emplace(name, Place{at->second, entry});
  }
  for (const auto& [file, number] : opened) {
    for (const auto& entry : files_[number].entries()) {
      const auto place = places_.find(entry.name);
      if (place == places_.end() || place->second.file != number) {
        fail("safetensors index: ", printable(file), ": it holds tensor ", in_quotes(entry.name),
             ", which ", index, place == places_.end() ? " does not list" : " places elsewhere");
      }
    }
  }
}

std::vector<std::string> TensorFiles::names() const {
  return places_ | ranges::views::keys | ranges::to<std::vector>();
}

const TensorFiles::Place& TensorFiles::place(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) {
    fail("safetensors: ", path_, ": tensor ", in_quotes(name), " is missing among ", places_.size(),
         " others");
  }
  return found->second;
}

void TensorFiles::read_box(std::string_view name, const Box& box, void* into) const {
  const Place& found = place(name);
  files_[found.file].read_box(*found.entry, box, into);
}

}  // namespace weft
