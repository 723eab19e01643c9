// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/transform.hpp>
#include <set>

#include "checkpoint/runs.h"
#include "checkpoint/source.h"
#include "weft/error.h"
#include "weft/extend/json.h"

namespace weft {

/// Nothing in PyTorch's shards says how many there should be: without the last one the shapes that
/// follow are smaller.
static std::string note_of_shards(const std::vector<std::string>& names) {
  std::set<int> shards;
  for (const std::string& name : names) {
    int shard = 0;
    if (std::sscanf(name.c_str(), "shard-%d-", &shard) == 1 && shard > 0) shards.insert(shard);
  }
  std::string note = concat("shapes follow from the parts in ", names.size(), " files");
  if (shards.empty()) return note;
  note += concat(", the last of shard ", *shards.rbegin());
  for (int shard = 1; shard < *shards.rbegin(); ++shard) {
    if (!shards.contains(shard)) return note + concat("; none is of shard ", shard);
  }
  return note;
}

namespace {

/// Tensors that lie in boxes which the files themselves tell.
class ShardSource final : public CheckpointSource {
 public:
  ShardSource(const std::string& path, const std::vector<std::string>& names)
      : CheckpointSource(path) {
    for (const std::string& name : names) add(path + "/" + name);
    infer_shapes();
    contents_.note = note_of_shards(names);
  }

  explicit ShardSource(const TensorFiles& files) : CheckpointSource(files.path()) {
    for (const SafetensorsFile& file : files.files()) {
      files_.push_back(file.path());
      for (const SafetensorsEntry& entry : file.entries()) {
        add_part(entry, {Dims::filled(entry.shape.ndim(), 0), entry.shape});
      }
    }
    infer_shapes();
  }

  std::vector<StoredBox> stored_boxes(const std::string& name, const Box& wanted) const override {
    return boxes_.at(name) | ranges::views::filter([&](const StoredBox& stored) {
             return overlap(stored.box, wanted).shape.product() > 0;
           }) |
           ranges::to<std::vector>();
  }

 protected:
  std::shared_ptr<const OpenedFile> open(size_t number) const override {
    return open_foreign_file(files_[number]);
  }

 private:
  void add(const std::string& path);
  Dims offset_of(const std::string& path, const nlohmann::json& info,
                 const SafetensorsEntry& entry) const;
  void add_part(const SafetensorsEntry& entry, const Box& box);
  void infer_shapes();

  /// Paths: there may be more files than a process may have open.
  std::vector<std::string> files_;
  std::map<std::string, std::vector<StoredBox>> boxes_;
};

Dims ShardSource::offset_of(const std::string& path, const nlohmann::json& info,
                            const SafetensorsEntry& entry) const {
  const auto found = info.find(entry.name);
  const bool known = found != info.end() && found->is_object() &&
                     found->contains("saved_offsets") && (*found)["saved_offsets"].is_array();
  Dims offset;
  if (known && (*found)["saved_offsets"].size() == static_cast<size_t>(entry.shape.ndim())) {
    for (const auto& value : (*found)["saved_offsets"]) {
      const bool good = value.is_number_unsigned() && value.get<uint64_t>() < uint64_t{1} << 62;
      if (!good) break;
      offset.push_back(value.get<int64_t>());
    }
  }
  if (!known || offset.ndim() != entry.shape.ndim()) {
    fail("checkpoint: ", path, ": DCP_SHARDING_INFO lacks saved_offsets of tensor ",
         in_quotes(entry.name), " of shape ", entry.shape);
  }
  for (int dim = 0; dim < offset.ndim(); ++dim) {
    if (entry.shape[dim] < int64_t{1} << 62) continue;
    fail("checkpoint: ", path, ": tensor ", in_quotes(entry.name), " of shape ", entry.shape,
         " is too large to lie at ", offset);
  }
  return offset;
}

void ShardSource::add(const std::string& path) {
  files_.push_back(path);
  const SafetensorsFile file(path);
  const auto text = file.metadata().find("DCP_SHARDING_INFO");
  nlohmann::json info;
  if (text != file.metadata().end()) {
    check_json("checkpoint", concat(path, ": DCP_SHARDING_INFO"), text->second);
    info = nlohmann::json::parse(text->second);
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    const Dims start = Dims::filled(entry.shape.ndim(), 0);
    add_part(entry, {info.is_null() ? start : offset_of(path, info, entry), entry.shape});
  }
}

void ShardSource::add_part(const SafetensorsEntry& entry, const Box& box) {
  const size_t file = files_.size() - 1;
  const auto [known, is_new] =
      contents_.tensors.try_emplace(entry.name, Entry{entry.dtype, entry.shape});
  if (known->second.dtype != entry.dtype || known->second.shape.ndim() != entry.shape.ndim()) {
    fail("checkpoint: ", files_.back(), ": tensor ", in_quotes(entry.name), " is ", entry.dtype,
         ' ', entry.shape, " but ", known->second.dtype, " of ", known->second.shape.ndim(),
         " dims in another file");
  }
  boxes_[entry.name].push_back({file, box});
}

void ShardSource::infer_shapes() {
  for (auto& [name, entry] : contents_.tensors) {
    auto bound = static_cast<int64_t>(size_of(entry.dtype));
    for (int dim = 0; dim < entry.shape.ndim(); ++dim) {
      int64_t end = 0;
      for (const StoredBox& part : boxes_[name]) {
        end = std::max(end, part.box.offset[dim] + part.box.shape[dim]);
      }
      entry.shape[dim] = end;
      if (__builtin_mul_overflow(bound, std::max<int64_t>(end, 1), &bound)) {
        fail("checkpoint: ", path(), ": tensor ", in_quotes(name),
             " has more bytes than 64 bits count");
      }
    }
    const auto boxes =
        boxes_[name] | ranges::views::transform(&StoredBox::box) | ranges::to<std::vector>();
    check_covers_once(concat(path(), ": tensor ", in_quotes(name)),
                      {Dims::filled(entry.shape.ndim(), 0), entry.shape}, boxes);
  }
}

}  // namespace

std::unique_ptr<CheckpointSource> open_shards(const std::string& path,
                                              const std::vector<std::string>& names) {
  return std::make_unique<ShardSource>(path, names);
}

std::unique_ptr<CheckpointSource> open_model(const std::string& path) {
  return std::make_unique<ShardSource>(TensorFiles(path));
}

}  // namespace weft
