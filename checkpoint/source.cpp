// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/source.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/transform.hpp>

#include "checkpoint/blocks.h"
#include "checkpoint/dcp.h"
#include "checkpoint/open_files.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft {

namespace fs = std::filesystem;

std::shared_ptr<const OpenedFile> CheckpointSource::file(size_t number) const {
  constexpr size_t most_open = 8;
  const auto found = opened.find(number);
  if (found != opened.end()) return found->second;
  if (opened.size() >= most_open) opened.clear();
  return opened[number] = open(number);
}

RankFileNames rank_files_in(const std::string& directory) {
  RankFileNames found;
  std::error_code error;
  for (const auto& [name, kind, bytes] : Store::of(directory).list(directory, error)) {
    int rank = 0, ranks = 0;
    if (parse_file_name(name, rank, ranks)) {
      found.names.push_back(name);
    } else if (name.ends_with(".safetensors")) {
      found.strangers.push_back(name);
    }
  }
  if (error) fail_call("readdir", "checkpoint: ", directory, ": ", error.message());
  std::sort(found.names.begin(), found.names.end());
  std::sort(found.strangers.begin(), found.strangers.end());
  return found;
}

static std::string last_name_of(const std::string& directory) {
  fs::path path = fs::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

bool has_checkpoint_name(const std::string& path) {
  int64_t step = 0;
  std::string generation;
  return parse_directory_name(last_name_of(path), step, generation);
}

static bool is_named(const std::string& directory, const Manifest& manifest) {
  return last_name_of(directory) == directory_name_of(manifest.step, manifest.generation);
}

std::string wrong_name(const std::string& directory, const Manifest& manifest) {
  int64_t step = 0;
  std::string generation;
  const std::string name = last_name_of(directory);
  if (!parse_directory_name(name, step, generation) || is_named(directory, manifest)) return {};
  return concat("checkpoint: ", directory, " is named ", name, ", expected ",
                directory_name_of(manifest.step, manifest.generation),
                " by its manifest; rename it");
}

int64_t stated_step(const std::string& directory, int64_t otherwise) {
  try {
    for (const std::string& name : rank_files_in(directory).names) {
      const std::string path = directory + "/" + name;
      try {
        return parsed_manifest(path, open_rank_file(path)->manifest_text()).step;
      } catch (const std::invalid_argument&) {
        // Another file may be sound.
      }
    }
  } catch (const std::runtime_error&) {
    // The directory or a file may have been removed meanwhile.
  }
  return otherwise;
}

static std::shared_ptr<const RankFiles> world_of(const OpenedFile& opened) {
  const std::string& path = opened.file.path();
  try {
    return std::make_shared<const RankFiles>(parsed_manifest(path, opened.manifest_text()));
  } catch (const std::invalid_argument& error) {
    throw BadFile(Verdict::corrupt, error.what(), path);
  }
}

/// Adds a file that says the same as those in `same`.
static void add_file(const OpenedFile& opened, const std::string& name, AgreedManifest& same) {
  int rank = 0, ranks = 0;
  const bool named = parse_file_name(name, rank, ranks) && ranks == same.world->manifest().ranks;
  try {
    if (named) check_rank_file(opened, *same.world, rank);
    (named ? same.own : same.others).insert(name);
    if (!named) return;
    if (!opened.non_finite) same.non_finite.reset();
    if (same.non_finite) same.non_finite->add(*opened.non_finite);
  } catch (const BadFile& bad) {
    if (bad.verdict != Verdict::mixed) throw;
    same.others.insert(name);
  }
}

AgreedManifest agreed_manifest(const std::string& directory, const RankFileNames& names) {
  std::vector<BadFile> bad_files;
  std::map<std::string, AgreedManifest> by_text;
  const OpenFiles files(directory, names.names);
  for (const auto& [i, name] : ranges::views::enumerate(names.names)) {
    try {
      const auto opened = files.open(i);
      AgreedManifest& same = by_text[opened->manifest_text()];
      if (!same.world) same = {.world = world_of(*opened), .non_finite = NonFinite{}};
      add_file(*opened, name, same);
    } catch (const BadFile& bad) {
      bad_files.push_back(bad);
    }
  }
  size_t most = 0;
  const AgreedManifest* believed = nullptr;
  for (const auto& [text, same] : by_text) {
    if (!same.world) continue;
    const size_t votes = same.own.size() + same.others.size() +
                         (is_named(directory, same.world->manifest()) ? names.names.size() : 0);
    if (votes <= most) continue;
    believed = &same;
    most = votes;
  }
  if (!believed && bad_files.empty()) {
    throw BadFile(Verdict::incomplete, concat("checkpoint: ", directory, " holds no rank's file"),
                  {});
  }
  if (!believed) throw bad_files.front();
  AgreedManifest agreed = *believed;
  agreed.bad = std::move(bad_files);
  for (const auto& [text, same] : by_text) {
    if (&same != believed) agreed.others.insert(same.own.begin(), same.own.end());
    agreed.others.insert(same.others.begin(), same.others.end());
  }
  return agreed;
}

/// The manifest that agreed_manifest believes; where the directory's name says it, its first sound
/// file is enough, and the others must agree when they are opened.
static std::shared_ptr<const RankFiles> believed(const std::string& path,
                                                 const RankFileNames& names) {
  for (const std::string& name : names.names) {
    try {
      auto world = world_of(*open_rank_file(path + "/" + name));
      if (!is_named(path, world->manifest())) break;
      int rank = 0, ranks = 0;
      parse_file_name(name, rank, ranks);
      if (ranks == world->manifest().ranks) return world;
    } catch (const BadFile&) {
      // It is bad only where it is needed.
    }
  }
  return agreed_manifest(path, names).world;
}

/// A checkpoint of a CheckpointSaver. Only the files that are used are opened.
static CheckpointSource saved_source(const std::string& path, const RankFileNames& names) {
  const auto world = believed(path, names);
  const Manifest& manifest = world->manifest();
  const std::string wrong = wrong_name(path, manifest);
  if (!wrong.empty()) throw BadFile(Verdict::mixed, wrong, {});
  CheckpointSource source{.path = path};
  source.contents.numbers = manifest.numbers;
  std::map<std::string, size_t> numbers;
  for (const auto& [i, tensor] : ranges::views::enumerate(manifest.tensors)) {
    source.contents.tensors.emplace(tensor.name,
                                    CheckpointSource::Entry{tensor.dtype, tensor.shape});
    numbers.emplace(tensor.name, i);
  }
  source.boxes_of = [world, numbers = std::move(numbers)](const std::string& name) {
    const size_t tensor = numbers.at(name);
    std::vector<CheckpointSource::StoredBox> boxes;
    for (const auto& [i, box] : ranges::views::enumerate(world->boxes_of(tensor))) {
      boxes.push_back({static_cast<size_t>(world->owner(tensor, i)), box});
    }
    return boxes;
  };
  source.open = [world, path](size_t number) {
    const auto rank = static_cast<int>(number);
    auto opened = open_rank_file(path + "/" + file_name_of(rank, world->manifest().ranks));
    check_rank_file(*opened, *world, rank);
    return opened;
  };
  return source;
}

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

/// Tensors that lie in boxes which the files themselves tell: shards as PyTorch's Hugging Face
/// writer leaves them (DCP_SHARDING_INFO tells where the parts of a file lie in the whole, whose
/// shape follows from them), or whole tensors.
class ShardedFiles {
 public:
  explicit ShardedFiles(const std::string& path) : path_(path) {}

  void add(const SafetensorsFile& file, bool is_of_shards) {
    const std::string& path = file.path();
    files_.push_back(path);
    const auto text = file.metadata().find("DCP_SHARDING_INFO");
    nlohmann::json info;
    if (is_of_shards && text != file.metadata().end()) {
      check_json("checkpoint", concat(path, ": DCP_SHARDING_INFO"), text->second);
      info = nlohmann::json::parse(text->second);
    }
    for (const SafetensorsEntry& entry : file.entries()) {
      const Dims offset =
          info.is_null() ? Dims::filled(entry.shape.ndim(), 0) : offset_of(path, info, entry);
      const auto [known, is_new] = contents_.tensors.try_emplace(
          entry.name, CheckpointSource::Entry{entry.dtype, entry.shape});
      const auto& [dtype, shape] = known->second;
      if (dtype != entry.dtype || shape.ndim() != entry.shape.ndim()) {
        fail("checkpoint: ", path, ": tensor ", in_quotes(entry.name), " is ", entry.dtype, ' ',
             entry.shape, " but ", dtype, " of ", shape.ndim(), " dims in another file");
      }
      boxes_[entry.name].push_back({files_.size() - 1, {offset, entry.shape}});
    }
  }

  /// Infers the shapes.
  CheckpointSource source(const std::string& note) && {
    for (auto& [name, entry] : contents_.tensors) {
      for (int dim = 0; dim < entry.shape.ndim(); ++dim) {
        int64_t end = 0;
        for (const CheckpointSource::StoredBox& part : boxes_[name]) {
          end = std::max(end, part.box.offset[dim] + part.box.shape[dim]);
        }
        entry.shape[dim] = end;
      }
      if (bytes_of(entry.shape, entry.dtype) < 0) {
        fail("checkpoint: ", path_, ": tensor ", in_quotes(name),
             " has more bytes than 64 bits count");
      }
      const auto boxes = boxes_[name] |
                         ranges::views::transform(&CheckpointSource::StoredBox::box) |
                         ranges::to<std::vector>();
      check_covers_once(concat(path_, ": tensor ", in_quotes(name)),
                        {Dims::filled(entry.shape.ndim(), 0), entry.shape}, boxes);
    }
    contents_.note = note;
    return {
        .path = path_,
        .contents = std::move(contents_),
        .boxes_of = [boxes = std::move(boxes_)](const std::string& name) { return boxes.at(name); },
        .open = [files = std::move(files_)](
                    size_t number) { return std::make_shared<const OpenedFile>(files[number]); }};
  }

 private:
  Dims offset_of(const std::string& path, const nlohmann::json& info,
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

  std::string path_;
  CheckpointContents contents_;
  /// Paths: there may be more files than a process may have open.
  std::vector<std::string> files_;
  std::map<std::string, std::vector<CheckpointSource::StoredBox>> boxes_;
};

}  // namespace

static bool is_model(const std::string& directory) {
  return path_exists(directory + "/model.safetensors") ||
         path_exists(directory + "/model.safetensors.index.json");
}

bool holds_checkpoints(const std::string& path) {
  return path_is_directory(path) && rank_files_in(path).names.empty() && !is_model(path) &&
         !list_checkpoints(path).empty();
}

CheckpointSource open_source(const std::string& path) {
  const bool is_directory = path_is_directory(path);
  const RankFileNames names = is_directory ? rank_files_in(path) : RankFileNames();
  if (!names.names.empty()) return saved_source(path, names);
  if (holds_checkpoints(path)) {
    fail("checkpoint: ", path, " is the directory of a run, expected one of its checkpoints; ",
         "newest_complete_checkpoint(world, path) chooses the newest for all ranks alike");
  }
  if (is_directory && is_dcp(path)) return dcp_source(path);
  ShardedFiles shards(path);
  if (is_model(path) || names.strangers.empty()) {
    const TensorFiles tensors(path);
    for (const SafetensorsFile& file : tensors.files()) shards.add(file, false);
    return std::move(shards).source("");
  }
  for (const std::string& name : names.strangers)
    shards.add(SafetensorsFile(path + "/" + name), true);
  return std::move(shards).source(note_of_shards(names.strangers));
}

void with_chosen(const std::string& path, const StateDict& into,
                 const std::function<void(const CheckpointSource&)>& fill) {
  const auto fill_from = [&](const std::string& chosen) {
    unless_removed(chosen, [&] { fill(open_source(chosen)); });
  };
  if (!holds_checkpoints(path)) return fill_from(path);
  const auto laid_out = std::ranges::find_if(
      into.tensors, [](const auto& named) { return named.second.is_sharded(); });
  Communicator world;
  if (laid_out != into.tensors.end()) world = laid_out->second.sharding().mesh().communicator();
  for (;;) {
    const std::string chosen =
        world ? newest_complete_checkpoint(world, path) : newest_complete_checkpoint(path);
    if (chosen.empty()) fail("load: ", path, " has no complete checkpoint, expected at least one");
    bool is_removed = false;
    std::exception_ptr error;
    try {
      fill_from(chosen);
    } catch (const CheckpointRemoved&) {
      is_removed = true;
    } catch (...) {
      error = std::current_exception();
    }
    if (world) is_removed = world.all_reduce_number(is_removed, ReduceOp::max) != 0;
    if (is_removed) continue;
    if (error) std::rethrow_exception(error);
    return;
  }
}

}  // namespace weft
