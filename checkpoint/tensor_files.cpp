// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/map.hpp>
#include <set>
#include <string_view>

#include "weft/error.h"
#include "weft/extend/json.h"
#include "weft/safetensors.h"

namespace weft {

static constexpr const char* kSingleFile = "model.safetensors";
static constexpr const char* kIndexFile = "model.safetensors.index.json";
/// A process has 1,024 descriptors by default, shared by all of its ranks.
static constexpr size_t kMostOpen = 32;

/// Checks that a file is in the index's directory: an untrusted index must not name other paths.
static void check_plain_file_name(const std::string& index, const std::string& name) {
  if (printable(name) != name || name.find_first_of("/\\") != name.npos ||
      !name.ends_with(".safetensors")) {
    fail("safetensors index: ", index, ": the file name ", in_quotes(name),
         " is not a plain *.safetensors name inside the directory");
  }
}

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
    check_plain_file_name(index, file.get_ref<const std::string&>());
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
  std::error_code ignored;
  check_no_pickle(path);
  const bool directory = fs::is_directory(path, ignored);
  const std::string single = directory ? (fs::path(path) / kSingleFile).string() : path;
  const std::string index = directory ? (fs::path(path) / kIndexFile).string() : path;
  if (directory && !fs::exists(single, ignored) && !fs::exists(index, ignored)) {
    for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
      if (fs::exists(fs::path(path) / name, ignored)) check_no_pickle(path + "/" + name);
    }
    fail("safetensors: ", path, " holds no model, expected ", kSingleFile, " or ", kIndexFile);
  }
  if (directory ? !fs::exists(single, ignored) : path.ends_with(".json")) {
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
