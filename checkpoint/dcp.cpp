// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/dcp.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "checkpoint/blocks.h"
#include "checkpoint/torch_file.h"
#include "weft/error.h"

namespace weft {

namespace fs = std::filesystem;
using Kind = Pickled::Kind;
using Entry = CheckpointSource::Entry;

using Names = std::pair<std::string, std::string>;

std::span<const Names> torch_options() {
  // PyTorch keeps beta1 and beta2 together, as "betas".
  static const std::array<Names, 8> names = {{{"lr", "learning_rate"},
                                              {"eps", "eps"},
                                              {"weight_decay", "weight_decay"},
                                              {"momentum", "momentum"},
                                              {"nesterov", "nesterov"},
                                              {"initial_lr", "initial_lr"},
                                              {"", "beta1"},
                                              {"", "beta2"}}};
  return names;
}

static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kMoments = {
    {{"exp_avg", "m"}, {"exp_avg_sq", "v"}, {"momentum_buffer", "velocity"}}};

std::string_view torch_moment(std::string_view moment) {
  for (const auto& [torch, weft] : kMoments) {
    if (weft == moment) return torch;
  }
  return {};
}

static constexpr const char* kMetadata = "torch.distributed.checkpoint.metadata.";

bool is_dcp(const std::string& directory) {
  std::error_code ignored;
  return path_is_file(directory + "/.metadata");
}

/// The globals of `.metadata`: its classes, torch's dtypes and sizes, and paths.
static bool is_of_metadata(std::string_view global) {
  return global.starts_with(kMetadata) || global.starts_with("torch.serialization._get_") ||
         global.starts_with("torch.distributed.checkpoint.filesystem._StorageInfo") ||
         global.starts_with("torch.distributed.checkpoint.storage.") ||
         global.starts_with("pathlib.") || global == "collections.OrderedDict" ||
         (global.starts_with("torch.") && global.find('.', 6) == global.npos);
}

namespace {

/// Part of a tensor, or a value: an item of a file.
struct Item {
  std::string file;
  int64_t begin = 0, bytes = 0;
};

/// The keys that lead to a saved value in the nested state dict, outermost first.
using Path = std::vector<std::string>;

/// Options that say how a step is computed, not what.
constexpr std::array<std::string_view, 4> kHarmless = {"foreach", "capturable", "differentiable",
                                                       "fused"};
class DcpReader {
 public:
  explicit DcpReader(const std::string& directory)
      : directory_(directory), name_(directory + "/.metadata"), pickle_(read()) {
    source_.path = directory;
  }

  CheckpointSource source() && {
    find_items();
    const Pickled& values = attribute(pickle_.root(), "state_dict_metadata", Kind::dict);
    for (size_t i = 0; i < values.items.size(); i += 2) {
      has_parts_ = has_parts_ || path_of(values.items[i]->text).size() > 1;
    }
    for (size_t i = 0; i < values.items.size(); i += 2) {
      const std::string& name = values.items[i]->text;
      const Pickled& value = *values.items[i + 1];
      const Path path = path_of(name);
      if (value.is_object(concat(kMetadata, "TensorStorageMetadata"))) {
        add_tensor(name, path, value);
      } else {
        add_value(name, path);
      }
    }
    for (const auto& [part, groups] : groups_) add_groups(part, groups);
    if (!others_.empty()) {
      source_.contents.note =
          concat("not taken: ", some_of(others_), ", neither tensors nor numbers");
    }
    source_.boxes_of = [boxes = std::move(boxes_)](const std::string& key) {
      return boxes.at(key);
    };
    source_.open = [directory = directory_, parts = std::move(parts_)](size_t number) {
      const auto& [item, entry] = parts[number];
      const File file("checkpoint", directory + "/" + item.file);
      SafetensorsEntry placed = entry;
      placed.offset = TorchFile(file, item.begin, item.bytes).elements(entry.dtype, entry.shape);
      return std::make_shared<const OpenedFile>(file, placed);
    };
    return std::move(source_);
  }

 private:
  /// The options and parameters of an optimizer's group.
  struct Group {
    std::map<std::string, int64_t> options;
    std::vector<std::string> parameters;
  };

  Pickle read() const {
    constexpr int64_t kMost = int64_t{1} << 31;
    return Pickle(name_, read_file("checkpoint", name_, kMost), is_of_metadata);
  }

  const Pickled& attribute(const Pickled& object, std::string_view name, Kind kind) const {
    const Pickled* found = object.find(name);
    if (!found || !found->is(kind)) {
      fail("checkpoint: ", name_, ": an object has no ", name,
           " of the expected kind, expected one as PyTorch 2.3 or later writes it");
    }
    return *found;
  }

  static std::string item_key(const std::string& name, const Dims& offset) {
    return concat(name, '\n', offset);
  }

  void find_items() {
    const Pickled& stored = attribute(pickle_.root(), "storage_data", Kind::dict);
    for (size_t i = 0; i < stored.items.size(); i += 2) {
      const Pickled &index = *stored.items[i], &info = *stored.items[i + 1];
      Item item{attribute(info, "relative_path", Kind::text).text,
                attribute(info, "offset", Kind::number).number,
                attribute(info, "length", Kind::number).number};
      const Pickled* transforms = info.find("transform_descriptors");
      if (transforms && !transforms->is(Kind::none) && !transforms->items.empty()) {
        fail("checkpoint: ", name_, ": ", item.file,
             " is compressed (transform_descriptors), expected plain items");
      }
      if (item.file.empty() || item.file.find('/') != item.file.npos) {
        fail("checkpoint: ", name_, ": a file is ", in_quotes(item.file),
             ", expected one of the directory");
      }
      const Pickled* offset = index.find("offset");
      const bool has_offset = offset && !offset->is(Kind::none);
      const std::string& name = attribute(index, "fqn", Kind::text).text;
      items_[item_key(name, has_offset ? torch_sizes(name_, *offset) : Dims())] = std::move(item);
    }
  }

  const Item& item(const std::string& name, const Dims& offset) const {
    const auto found = items_.find(item_key(name, offset));
    if (found == items_.end()) {
      fail("checkpoint: ", name_, ": ", in_quotes(name), " at ", offset,
           " lies in no file, expected one");
    }
    return found->second;
  }

  Path path_of(const std::string& name) const {
    const Pickled* planner = pickle_.root().find("planner_data");
    const Pickled* found = planner ? planner->find(name) : nullptr;
    Path path;
    if (found && found->is(Kind::list)) {
      for (const Pickled* word : found->items) {
        path.push_back(word->is(Kind::number) ? concat(word->number) : word->text);
      }
    }
    return path.empty() ? Path{name} : path;
  }

  static std::string joined(const Path& path, size_t first) {
    std::string text;
    for (size_t i = first; i < path.size(); ++i) {
      text += concat(i > first ? "." : "", path[i]);
    }
    return text;
  }
  /// A single word is a part's name where others have parts, as TrainingState::add gives them.
  std::string key_of(const Path& path) const {
    if (path.size() > 1) return concat(path[0], '/', joined(path, 1));
    return has_parts_ ? path[0] + "/value" : path[0];
  }

  void add_tensor(const std::string& name, const Path& path, const Pickled& value) {
    const Pickled& properties = attribute(value, "properties", Kind::object);
    const Pickled* dtype = properties.find("dtype");
    // Attributes, a tuple as the state, or the constructor's arguments.
    if (!dtype && !properties.items.back()->items.empty())
      dtype = properties.items.back()->items[0];
    if (!dtype) fail("checkpoint: ", name_, ": ", in_quotes(name), " has no dtype, expected one");
    const Pickled* size = value.find("size");
    if (!size) fail("checkpoint: ", name_, ": ", in_quotes(name), " has no size, expected one");
    const Entry entry{torch_dtype(name_, *dtype), torch_sizes(name_, *size)};
    if (bytes_of(entry.shape, entry.dtype) < 0) {
      fail("checkpoint: ", name_, ": tensor ", in_quotes(name),
           " has more bytes than 64 bits count, expected fewer");
    }
    std::string key = key_of(path);
    if (path.size() > 3 && path[1] == "state") {
      if (path.back() == "step" && entry.shape.ndim() == 0) return add_steps(name, path, entry);
      Path renamed(path.begin() + 2, path.end());
      for (const auto& [torch, weft] : kMoments) {
        if (path.back() == torch) renamed.back() = weft;
      }
      key = concat(path[0], '/', joined(renamed, 0));
    }
    if (!source_.contents.tensors.emplace(key, entry).second) {
      fail("checkpoint: ", name_, ": two tensors are ", in_quotes(key), ", expected one");
    }
    std::vector<Box> covered;
    for (const Pickled* chunk : attribute(value, "chunks", Kind::list).items) {
      const Pickled *offsets = chunk->find("offsets"), *sizes = chunk->find("sizes");
      if (!offsets || !sizes) {
        fail("checkpoint: ", name_, ": a part of ", in_quotes(name),
             " has no offsets and sizes, expected both");
      }
      const Box box{torch_sizes(name_, *offsets), torch_sizes(name_, *sizes)};
      boxes_[key].push_back({parts_.size(), box});
      parts_.push_back({item(name, box.offset), {key, entry.dtype, box.shape}});
      parts_.back().second.bytes = bytes_of(box.shape, entry.dtype);
      covered.push_back(box);
    }
    const Box whole{Dims::filled(entry.shape.ndim(), 0), entry.shape};
    check_covers_once(concat(name_, ": tensor ", in_quotes(name)), whole, covered);
  }

  TorchFile opened(const Item& item) const {
    return TorchFile(File("checkpoint", directory_ + "/" + item.file), item.begin, item.bytes);
  }

  /// The number of updates of a parameter, which PyTorch keeps as a tensor.
  void add_steps(const std::string& name, const Path& path, const Entry& entry) {
    const Item& at = item(name, {});
    const int64_t offset = opened(at).elements(entry.dtype, entry.shape);
    double steps = 0;
    if (entry.dtype == f32) {
      float value = 0;
      read_to(at, offset, value);
      steps = static_cast<double>(value);
    } else if (entry.dtype == i64) {
      int64_t value = 0;
      read_to(at, offset, value);
      steps = static_cast<double>(value);
    } else {
      fail("checkpoint: ", name_, ": ", in_quotes(name), " is ", entry.dtype,
           ", expected f32 or i64");
    }
    if (!(steps >= 0 && steps < 0x1p53)) {
      fail("checkpoint: ", name_, ": ", in_quotes(name), " is ", steps,
           ", expected a count of steps");
    }
    const Path parameter(path.begin() + 2, path.end() - 1);
    source_.contents.numbers[concat(path[0], '/', joined(parameter, 0), ".steps")] =
        static_cast<int64_t>(steps);
  }
  template <class T> void read_to(const Item& at, int64_t offset, T& value) const {
    File("checkpoint", directory_ + "/" + at.file)
        .read(offset, std::as_writable_bytes(std::span(&value, 1)));
  }

  static std::optional<int64_t> bits_of(const Pickled& value) {
    if (value.is(Kind::number)) return value.number;
    if (value.is(Kind::real)) return std::bit_cast<int64_t>(value.real);
    return {};
  }
  /// A number's bits as a double's.
  static int64_t as_double(const Pickled& value) {
    return std::bit_cast<int64_t>(value.is(Kind::number) ? static_cast<double>(value.number)
                                                         : value.real);
  }

  void add_value(const std::string& name, const Path& path) {
    const TorchFile file = opened(item(name, {}));
    const Pickled& value = file.value();
    if (path.size() == 4 && path[1] == "param_groups") {
      return add_option(groups_[path[0]][std::atoi(path[2].c_str())], name, path[3], value);
    }
    if (const std::optional<int64_t> number = bits_of(value)) {
      source_.contents.numbers[key_of(path)] = *number;
    } else {
      others_.push_back(name);
    }
  }

  void add_option(Group& group, const std::string& name, const std::string& option,
                  const Pickled& value) {
    if (option == "params") {
      for (const Pickled* parameter : value.items) group.parameters.push_back(parameter->text);
      return;
    }
    if (option == "betas" && value.items.size() == 2) {
      group.options["beta1"] = as_double(*value.items[0]);
      group.options["beta2"] = as_double(*value.items[1]);
      return;
    }
    const auto known = std::ranges::find(torch_options(), option, &Names::first);
    if (known != torch_options().end() && bits_of(value)) {
      group.options[known->second] = as_double(value);
      return;
    }
    if (std::ranges::count(kHarmless, option) > 0) return;
    if (option == "decoupled_weight_decay") {
      group.options[option] = value.number;
      return;
    }
    const bool is_off = value.is(Kind::none) || (bits_of(value) && as_double(value) == 0);
    if (!is_off) {
      fail("checkpoint: ", name_, ": ", in_quotes(name), " is set, expected ", option,
           " off: weft's optimizers do not compute such steps");
    }
  }

  void add_groups(const std::string& part, const std::map<int, Group>& groups) {
    const Group& first = groups.begin()->second;
    for (const auto& [number, group] : groups) {
      std::map<std::string, int64_t> options = group.options;
      const auto decoupled = options.extract("decoupled_weight_decay");
      // Both kinds compute the same without weight decay.
      if (decoupled && options["weight_decay"] != 0) {
        const bool is_adamw = decoupled.mapped() != 0;
        auto& numbers = source_.contents.numbers;
        if (numbers.contains(concat(part, is_adamw ? "/kind.adam" : "/kind.adamw"))) {
          fail("checkpoint: ", name_, ": ", part, ".param_groups.", number, " is of ",
               is_adamw ? "AdamW" : "Adam", ", expected one kind in all groups");
        }
        numbers[concat(part, is_adamw ? "/kind.adamw" : "/kind.adam")] = 1;
      }
      // PyTorch's SGD does not count its steps; weft's need not either, but for the first.
      for (const std::string& parameter : group.parameters) {
        const std::string key = concat(part, '/', parameter);
        source_.contents.numbers.try_emplace(
            key + ".steps", source_.contents.tensors.contains(key + ".velocity") ? 1 : 0);
      }
      for (const auto& [option, bits] : options) {
        if (&group == &first) {
          source_.contents.numbers[concat(part, '/', option)] = bits;
        } else {
          const auto usual = first.options.find(option);
          if (usual != first.options.end() && usual->second == bits) continue;
          for (const std::string& parameter : group.parameters) {
            source_.contents.numbers[concat(part, '/', parameter, '.', option)] = bits;
          }
        }
      }
    }
  }

  const std::string directory_, name_;
  const Pickle pickle_;
  CheckpointSource source_;
  /// Some values lie deeper than the first level of the state dict.
  bool has_parts_ = false;
  std::map<std::string, Item> items_;
  /// The parts of all tensors: where each lies, and the entry of its elements.
  std::vector<std::pair<Item, SafetensorsEntry>> parts_;
  std::map<std::string, std::vector<CheckpointSource::StoredBox>> boxes_;
  std::map<std::string, std::map<int, Group>> groups_;
  std::vector<std::string> others_;
};

}  // namespace

CheckpointSource dcp_source(const std::string& directory) { return DcpReader(directory).source(); }

}  // namespace weft
