// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "checkpoint/blocks.h"
#include "checkpoint/dcp.h"
#include "checkpoint/file_writer.h"
#include "checkpoint/optimizer_keys.h"
#include "checkpoint/pickle_writer.h"
#include "checkpoint/source.h"
#include "checkpoint/torch_file.h"
#include "weft/dcp.h"
#include "weft/error.h"
#include "weft/extend/crc.h"

namespace weft {

using pickled::Values;

static constexpr int64_t kPartBytes = int64_t{256} << 20;
static constexpr const char* kDataFile = "__0_0.distcp";

static std::string torch_global(DType dtype) { return pickled::global("torch", torch_name(dtype)); }

static std::string metadata_global(std::string_view name) {
  return pickled::global("torch.distributed.checkpoint.metadata", name);
}

/// An attribute's name and value.
static std::string named(std::string_view name, const std::string& value) {
  return pickled::text(name) + value;
}

static std::string torch_size(const Dims& dims) {
  return pickled::call(pickled::global("torch", "Size"), {pickled::sizes(dims)});
}

namespace {

/// The data file: items as `torch.save` writes them, one after the other.
class ItemFile {
 public:
  explicit ItemFile(const std::string& path) : file_("export", path, O_CREAT | O_TRUNC) {}

  int64_t size() const { return at_; }
  void sync() const { file_.sync(); }

  void add(const std::string& pickle, std::optional<std::span<const std::byte>> elements = {}) {
    begin_ = at_;
    directory_.clear();
    members_ = 0;
    add_member("data.pkl", bytes_of(pickle));
    add_member("byteorder", bytes_of("little"));
    if (elements) add_member("data/0", *elements);
    add_member("version", bytes_of("3\n"));
    const auto start = static_cast<uint32_t>(at_ - begin_);
    const std::string end =
        concat("PK\5\6", std::string(4, '\0'), pickled::raw(members_), pickled::raw(members_),
               pickled::raw(static_cast<uint32_t>(directory_.size())), pickled::raw(start),
               pickled::raw(uint16_t{0}));
    write(bytes_of(directory_ + end));
  }

 private:
  static std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
  }
  void write(std::span<const std::byte> bytes) {
    file_.write(at_, bytes);
    at_ += std::ssize(bytes);
  }

  /// An uncompressed member of the zip format, whose bytes begin at a multiple of 64.
  void add_member(const std::string& name, std::span<const std::byte> bytes) {
    const std::string path = "archive/" + name;
    const auto size = static_cast<uint32_t>(bytes.size());
    const uint32_t crc = crc32_of<kZipPolynomial>(bytes);
    // Version, flags, method, time and date (1980-01-01), CRC, sizes, length of the name.
    const std::string common =
        concat(std::string_view("\0\0\0\0\0\0\x21\0", 8), pickled::raw(crc), pickled::raw(size),
               pickled::raw(size), pickled::raw(static_cast<uint16_t>(path.size())));
    constexpr int64_t kLocal = 30, kExtra = 4, kAlignment = 64;
    const int64_t before = at_ - begin_ + kLocal + std::ssize(path) + kExtra;
    const auto padding = static_cast<uint16_t>((kAlignment - before % kAlignment) % kAlignment);
    const auto local = static_cast<uint32_t>(at_ - begin_);
    const std::string version = pickled::raw(uint16_t{20});
    write(bytes_of(concat("PK\3\4", version, common,
                          pickled::raw(static_cast<uint16_t>(kExtra + padding)), path, "FB",
                          pickled::raw(padding), std::string(padding, 'Z'))));
    write(bytes);
    directory_ += concat("PK\1\2", version, version, common, std::string(12, '\0'),
                         pickled::raw(local), path);
    ++members_;
  }

  WrittenFile file_;
  int64_t at_ = 0, begin_ = 0;
  std::string directory_;
  uint16_t members_ = 0;
};

/// An optimizer's group: options by weft's names, and the names of its parameters.
struct OptimizerGroup {
  std::map<std::string, double> options;
  Values parameters;
};

class DcpWriter {
 public:
  DcpWriter(const CheckpointSource& source, const std::string& directory,
            const std::function<void(int64_t)>& progress)
      : source_(source), file_(directory + "/" + kDataFile), progress_(progress) {
    constexpr std::string_view ending = ".steps";
    for (const auto& [key, number] : source.contents.numbers) {
      if (key.ends_with(ending) && key.find('/') != key.npos) {
        const size_t slash = key.find('/');
        const std::string part = key.substr(0, slash);
        optimizers_[part].push_back(key.substr(slash + 1, key.size() - slash - 1 - ending.size()));
      }
    }
  }

  /// Returns the text of `.metadata`.
  std::string run() {
    for (const auto& [part, parameters] : optimizers_) check_kind(part);
    for (const auto& [key, entry] : source_.contents.tensors) add_tensor(key, entry);
    for (const auto& [part, parameters] : optimizers_) add_optimizer(part, parameters);
    for (const auto& [key, number] : source_.contents.numbers) {
      if (!optimizers_.contains(key.substr(0, key.find('/')))) {
        add_value(path_of(key), pickled::number(number));
      }
    }
    file_.sync();
    return pickled::whole(pickled::object(metadata_global("Metadata"),
                                          {named("state_dict_metadata", pickled::dict(values_)),
                                           named("planner_data", pickled::dict(paths_)),
                                           named("storage_data", pickled::dict(places_))}));
  }

 private:
  using Path = std::vector<std::string>;

  /// "model/0.weight" is {"model": {"0.weight"}}; "step/value" is {"step"}.
  static Path path_of(const std::string& key) {
    const size_t slash = key.find('/');
    if (slash == key.npos) return {key};
    if (key.substr(slash) == "/value") return {key.substr(0, slash)};
    return {key.substr(0, slash), key.substr(slash + 1)};
  }

  /// Notes a value at a path, of which `words` may replace the texts; returns its name.
  std::string note(const Path& path, const std::string& value, const Values& words = {}) {
    std::string name;
    Values texts;
    for (const std::string& word : path) {
      name += concat(name.empty() ? "" : ".", word);
      texts.push_back(pickled::text(word));
    }
    values_.push_back(pickled::text(name));
    values_.push_back(value);
    paths_.push_back(pickled::text(name));
    paths_.push_back(pickled::tuple(words.empty() ? texts : words));
    return name;
  }

  /// Notes where the last item lies.
  void place(const std::string& name, const std::string& offset, const std::string& index,
             int64_t begin) {
    places_.push_back(pickled::object(
        metadata_global("MetadataIndex"),
        {named("fqn", pickled::text(name)), named("offset", offset), named("index", index)}));
    places_.push_back(pickled::object(
        pickled::global("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        {named("relative_path", pickled::text(kDataFile)), named("offset", pickled::number(begin)),
         named("length", pickled::number(file_.size() - begin))}));
    if (progress_) progress_(file_.size());
  }

  void add_value(const Path& path, const std::string& value, const Values& words = {}) {
    const std::string name =
        note(path, pickled::object(metadata_global("BytesStorageMetadata"), {}), words);
    const int64_t begin = file_.size();
    file_.add(pickled::whole(value));
    place(name, pickled::none(), pickled::none(), begin);
  }

  static std::string tensor_metadata(DType dtype, const Shape& shape, const Values& chunks) {
    // Its constructor knows the other properties of a dense tensor in each version.
    const std::string properties =
        pickled::call(metadata_global("TensorProperties"), {torch_global(dtype)});
    return pickled::object(metadata_global("TensorStorageMetadata"),
                           {named("properties", properties), named("size", torch_size(shape)),
                            named("chunks", pickled::list(chunks))});
  }

  static std::string chunk(const Dims& offsets, const Dims& sizes) {
    return pickled::object(
        metadata_global("ChunkStorageMetadata"),
        {named("offsets", torch_size(offsets)), named("sizes", torch_size(sizes))});
  }

  /// One part of a tensor.
  void add_part(const std::string& name, const Box& box, size_t index, DType dtype,
                std::span<const std::byte> elements) {
    // Follows torch.save's pickle of a dense tensor: a persistent id, offset, sizes, strides.
    const std::string storage = pickled::tuple(
        {pickled::text("storage"), pickled::global("torch", torch_storage_name(dtype)),
         pickled::text("0"), pickled::text("cpu"), pickled::number(box.shape.product())});
    Dims strides;
    for (const int64_t stride : dense_strides(box.shape)) strides.push_back(stride);
    const std::string tensor =
        pickled::call(pickled::global("torch._utils", "_rebuild_tensor_v2"),
                      {storage + "Q", pickled::number(0), pickled::sizes(box.shape),
                       pickled::sizes(strides), pickled::boolean(false),
                       pickled::call(pickled::global("collections", "OrderedDict"), {})});
    const int64_t begin = file_.size();
    file_.add(pickled::whole(tensor), elements);
    place(name, torch_size(box.offset), pickled::number(static_cast<int64_t>(index)), begin);
  }

  /// The path at which PyTorch keeps a tensor, an optimizer's moments under its names.
  Path torch_path(const std::string& key) const {
    const Path path = path_of(key);
    if (path.size() < 2 || !optimizers_.contains(path[0])) return path;
    const size_t dot = path[1].rfind('.');
    const std::string parameter = path[1].substr(0, dot), moment = path[1].substr(dot + 1);
    const std::string_view name = torch_moment(moment);
    // Lion and Muon have one that AdamW has too, but not the other.
    const std::string other = moment == "m" ? "v" : moment == "v" ? "m" : moment;
    if (name.empty() ||
        !source_.contents.tensors.contains(concat(path[0], '/', parameter, '.', other))) {
      fail("export: ", source_.path, ": tensor ", in_quotes(key), " is a moment without the ones ",
           "that PyTorch's optimizers have too, expected all of AdamW or SGD");
    }
    return {path[0], "state", parameter, std::string(name)};
  }

  void add_tensor(const std::string& key, const CheckpointSource::Entry& entry) {
    const auto& [dtype, shape] = entry;
    const int64_t row = bytes_of(shape, dtype) / std::max<int64_t>(1, shape.empty() ? 1 : shape[0]);
    const int64_t rows = std::max<int64_t>(1, kPartBytes / std::max<int64_t>(1, row));
    std::vector<Box> boxes;
    Values chunks;
    for (int64_t first = 0; boxes.empty() || (!shape.empty() && first < shape[0]); first += rows) {
      Box box{Dims::filled(shape.ndim(), 0), shape};
      if (!shape.empty()) {
        box.offset[0] = first;
        box.shape[0] = std::min(rows, shape[0] - first);
      }
      boxes.push_back(box);
      chunks.push_back(chunk(box.offset, box.shape));
    }
    const std::string name = note(torch_path(key), tensor_metadata(dtype, shape, chunks));
    for (size_t i = 0; i < boxes.size(); ++i) {
      std::vector<std::byte> elements(static_cast<size_t>(bytes_of(boxes[i].shape, dtype)));
      if (!elements.empty()) read_wishes(source_, {{key, boxes[i], elements.data()}});
      add_part(name, boxes[i], i, dtype, elements);
    }
  }

  void check_kind(const std::string& part) const {
    const std::string kind = saved_kind(source_.contents.numbers, part + '/');
    if (kind.empty() || kind == "adam" || kind == "adamw" || kind == "sgd") return;
    fail("export: ", source_.path, ": ", in_quotes(part), " is of ", kind,
         ", expected adam, adamw or sgd, which PyTorch has too");
  }

  double option(const std::string& key, double otherwise) const {
    const auto found = source_.contents.numbers.find(key);
    return found == source_.contents.numbers.end() ? otherwise
                                                   : std::bit_cast<double>(found->second);
  }

  void add_optimizer(const std::string& part, const std::vector<std::string>& parameters) {
    std::vector<OptimizerGroup> groups;
    const auto& numbers = source_.contents.numbers;
    const std::string kind = saved_kind(numbers, part + '/');
    for (const std::string& parameter : parameters) {
      const auto steps =
          static_cast<float>(source_.contents.numbers.at(concat(part, '/', parameter, ".steps")));
      const std::string name =
          note({part, "state", parameter, "step"}, tensor_metadata(f32, {}, {chunk({}, {})}));
      add_part(name, {}, 0, f32, std::as_bytes(std::span(&steps, 1)));
      std::map<std::string, double> options;
      for (const auto& [torch, weft] : torch_options()) {
        const std::string key = concat(part, '/', weft);
        if (!source_.contents.numbers.contains(key)) continue;
        options[weft] = option(concat(part, '/', parameter, '.', weft), option(key, 0));
      }
      if (numbers.contains(concat(part, '/', parameter, ".decays"))) options["weight_decay"] = 0;
      auto group = std::ranges::find(groups, options, &OptimizerGroup::options);
      if (group == groups.end()) group = groups.insert(group, OptimizerGroup{options, {}});
      group->parameters.push_back(pickled::text(parameter));
    }
    for (size_t i = 0; i < groups.size(); ++i) add_group(part, i, groups[i], kind != "adam");
  }

  void add_group(const std::string& part, size_t index, const OptimizerGroup& group,
                 bool is_decoupled) {
    const auto add = [&](const std::string& name, const std::string& value) {
      add_value({part, "param_groups", concat(index), name}, value,
                {pickled::text(part), pickled::text("param_groups"),
                 pickled::number(static_cast<int64_t>(index)), pickled::text(name)});
    };
    const bool is_adam = group.options.contains("beta1");
    for (const auto& [torch, weft] : torch_options()) {
      const auto found = group.options.find(weft);
      if (found == group.options.end() || torch.empty()) continue;
      add(torch, torch == "nesterov" ? pickled::boolean(found->second != 0)
                                     : pickled::real(found->second));
    }
    if (is_adam) {
      add("betas", pickled::tuple({pickled::real(group.options.at("beta1")),
                                   pickled::real(group.options.at("beta2"))}));
      for (const char* off : {"amsgrad", "capturable"}) add(off, pickled::boolean(false));
      add("decoupled_weight_decay", pickled::boolean(is_decoupled));
    } else {
      add("dampening", pickled::number(0));
    }
    for (const char* off : {"maximize", "differentiable"}) add(off, pickled::boolean(false));
    for (const char* open : {"foreach", "fused"}) add(open, pickled::none());
    add("params", pickled::list(group.parameters));
  }

  const CheckpointSource& source_;
  ItemFile file_;
  const std::function<void(int64_t)>& progress_;
  /// The parameters of each optimizer, by part.
  std::map<std::string, std::vector<std::string>> optimizers_;
  /// Keys and values of the metadata's dicts.
  Values values_, paths_, places_;
};

}  // namespace

void export_dcp(const std::string& checkpoint, const std::string& directory,
                const std::function<void(int64_t bytes)>& progress) {
  if (is_dcp(directory)) {
    fail("export: ", directory, " has a .metadata already, expected a new directory");
  }
  const CheckpointSource source = open_source(checkpoint);
  make_directories(directory);
  const std::string metadata = DcpWriter(source, directory, progress).run();
  const std::string written = directory + "/.metadata.tmp";
  WrittenFile out("export", written, O_CREAT | O_TRUNC);
  out.write(0, std::as_bytes(std::span(metadata)));
  out.sync();
  rename_to_new(written, directory + "/.metadata");
  sync_directory(directory);
}

}  // namespace weft
