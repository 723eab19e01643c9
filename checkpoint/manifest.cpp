// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/transform.hpp>
#include <set>

#include "checkpoint/blocks.h"
#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft {

std::vector<int> SavedSharding::sizes() const {
  return axes | ranges::views::transform(&MeshAxis::size) | ranges::to<std::vector>();
}

std::string file_name_of(int rank, int ranks) {
  return formatted("rank-%05d-of-%05d.safetensors", rank, ranks);
}

std::string directory_name_of(int64_t step, const std::string& generation) {
  return formatted("step-%08" PRId64 "-%s", step, generation.c_str());
}

bool parse_file_name(const std::string& name, int& rank, int& ranks) {
  if (name.size() > 60 || std::sscanf(name.c_str(), "rank-%9d-of-%9d", &rank, &ranks) != 2) {
    return false;
  }
  return rank >= 0 && rank < ranks && name == file_name_of(rank, ranks);
}

bool parse_directory_name(const std::string& name, int64_t& step, std::string& generation) {
  char digits[17] = {};
  if (name.size() > 60 ||
      std::sscanf(name.c_str(), "step-%18" SCNd64 "-%16[0-9a-f]", &step, digits) != 2) {
    return false;
  }
  generation = digits;
  return step >= 0 && generation.size() == 16 && name == directory_name_of(step, generation);
}

std::string drawn_tag() {
  std::random_device device;
  const uint64_t bits = uint64_t{device()} << 32 | device();
  return hex_of({&bits, 1});
}

static size_t layout_number(Manifest& manifest, const Sharding& sharding) {
  SavedSharding saved;
  if (sharding) saved.pattern = sharding.pattern();
  const DeviceMesh mesh = sharding.mesh();
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    saved.axes.push_back({mesh.axis_name(axis), mesh.axis_size(axis)});
  }
  std::vector<SavedSharding>& layouts = manifest.layouts;
  const auto found = std::find(layouts.begin(), layouts.end(), saved);
  const auto number = static_cast<size_t>(found - layouts.begin());
  if (saved.pattern.has_sizes()) manifest.format = Manifest::kFormatOfParts;
  if (number == layouts.size()) layouts.push_back(std::move(saved));
  return number;
}

/// True when a JSON string can hold the text.
static bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

void check_has_elements(const char* what, const std::string& name, const Tensor& tensor) {
  if (tensor.device().kind == DeviceKind::meta) {
    fail(what, ": tensor ", in_quotes(name),
         " has no memory, expected some; call materialize first");
  }
  if (tensor.is_sharded() && tensor.sharding().has_partial()) {
    fail(what, ": tensor ", in_quotes(name), " is laid out as ", tensor.sharding(),
         ", expected no Partial; redistribute it first");
  }
  if (tensor.is_sharded() && tensor.sharding().has_inner()) {
    fail(what, ": tensor ", in_quotes(name), " is laid out as ", tensor.sharding(),
         ", expected no cut of an inner factor: a file holds one box of a tensor; redistribute it "
         "first");
  }
}

static void check_can_be_saved(const std::string& name, const Tensor& tensor, int ranks) {
  if (name == "__metadata__" || !is_utf8(name)) {
    fail("save: key of a tensor is ", in_quotes(name),
         ", expected UTF-8 other than \"__metadata__\"");
  }
  if (!tensor) fail("save: tensor ", in_quotes(name), " is undefined, expected a tensor");
  check_has_elements("save", name, tensor);
  if (!tensor.is_sharded()) return;
  if (const int size = tensor.sharding().mesh().size(); size != ranks) {
    fail("save: tensor ", in_quotes(name), " is laid out over ", size, " ranks, expected ", ranks,
         ", all that save");
  }
}

Manifest manifest_of(const StateDict& state, int ranks, int64_t step,
                     const std::string& generation) {
  Manifest manifest{.ranks = ranks,
                    .step = step,
                    .generation = generation,
                    .layouts = {},
                    .tensors = {},
                    .numbers = state.numbers};
  for (const auto& [key, number] : state.numbers) {
    if (!is_utf8(key)) fail("save: key of a number is ", in_quotes(key), ", expected UTF-8");
  }
  for (const auto& [name, tensor] : state.tensors) {
    check_can_be_saved(name, tensor, ranks);
    const size_t layout = layout_number(manifest, tensor.sharding());
    manifest.tensors.push_back({name, tensor.dtype(), tensor.shape(), layout});
  }
  std::ranges::stable_sort(manifest.tensors, std::greater(),
                           [](const SavedTensor& tensor) { return size_of(tensor.dtype); });
  return manifest;
}

using ManifestJson = nlohmann::ordered_json;

static constexpr int kMostRanks = 1 << 20;

/// "cutting" lists, for each dim up to the last one that is cut, the axes that cut it; "parts", if
/// present, the explicit sizes along each axis.
static ManifestJson json_of(const SavedSharding& sharding) {
  ManifestJson axes = ManifestJson::array(), dims = ManifestJson::array();
  for (const MeshAxis& axis : sharding.axes) axes.push_back({axis.name, axis.size});
  int end = 0;
  for (const Placement& placement : sharding.pattern.placements()) {
    dims.push_back(placement.dim());
    end = std::max(end, placement.dim() + 1);
  }
  std::vector<std::vector<int>> cutting;
  for (int dim = 0; dim < end; ++dim) {
    const Axes order = sharding.pattern.cutting(dim);
    cutting.emplace_back(order.begin(), order.end());
  }
  ManifestJson json{{"axes", axes}, {"dims", dims}, {"cutting", cutting}};
  if (sharding.pattern.has_sizes()) {
    for (const Placement& placement : sharding.pattern.placements()) {
      const std::span<const int64_t> sizes = placement.sizes();
      json["parts"].push_back(std::vector<int64_t>(sizes.begin(), sizes.end()));
    }
  }
  return json;
}

std::string text_of(const Manifest& manifest) {
  ManifestJson layouts = ManifestJson::array(), tensors = ManifestJson::array();
  for (const SavedSharding& layout : manifest.layouts) layouts.push_back(json_of(layout));
  for (const SavedTensor& tensor : manifest.tensors) {
    const std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end());
    tensors.push_back({tensor.name, safetensors_name_of(tensor.dtype), shape, tensor.layout});
  }
  return ManifestJson{{"format", manifest.format},  {"generation", manifest.generation},
                      {"step", manifest.step},      {"ranks", manifest.ranks},
                      {"layouts", layouts},         {"tensors", tensors},
                      {"numbers", manifest.numbers}}
      .dump();
}

namespace {

/// Reads the parts of a manifest; each refusal names the file and the part. Parses by a map: an
/// ordered object of many numbers takes quadratic time.
class ManifestParser {
 public:
  explicit ManifestParser(const std::string& source) : source_(source) {}

  Manifest parse(const std::string& text) {
    check_json("checkpoint", source_, text);
    const auto json = nlohmann::json::parse(text);
    const int64_t format = whole(member(json, "format", "number"), "its format", 0, INT64_MAX);
    if (format < 1 || format > Manifest::kFormatOfParts) {
      refuse("is of format ", format, "; this weft reads 1 to ", Manifest::kFormatOfParts);
    }
    Manifest manifest;
    manifest.format = static_cast<int>(format);
    manifest.generation = member(json, "generation", "string").get<std::string>();
    manifest.step = whole(member(json, "step", "number"), "its step", 0, INT64_MAX);
    manifest.ranks =
        static_cast<int>(whole(member(json, "ranks", "number"), "its ranks", 1, kMostRanks));
    for (const auto& layout : member(json, "layouts", "array")) {
      manifest.layouts.push_back(sharding(layout));
    }
    std::set<std::string> names;
    int64_t bytes = 0;
    for (const auto& one : member(json, "tensors", "array")) {
      manifest.tensors.push_back(tensor(one, manifest));
      const SavedTensor& last = manifest.tensors.back();
      if (__builtin_add_overflow(bytes, bytes_of(last.shape, last.dtype), &bytes)) {
        refuse("has tensors of more bytes than 64 bits count");
      }
      if (!names.insert(last.name).second) refuse("names tensor ", in_quotes(last.name), " twice");
    }
    for (const auto& [key, number] : member(json, "numbers", "object").items()) {
      manifest.numbers.emplace(key, whole(number, "a number", INT64_MIN, INT64_MAX));
    }
    return manifest;
  }

 private:
  template <class... Parts> [[noreturn]] void refuse(const Parts&... parts) const {
    fail("checkpoint: ", source_, ": the manifest ", parts...);
  }
  const nlohmann::json& member(const nlohmann::json& of, const char* key, const char* kind) const {
    const auto found = of.find(key);
    if (found == of.end()) refuse("has no ", in_quotes(key));
    const std::string_view actual = found->type_name();
    if (actual != kind) refuse("has a ", actual, " as ", in_quotes(key), ", not a ", kind);
    return *found;
  }
  int64_t whole(const nlohmann::json& value, const char* what, int64_t low, int64_t high) const {
    const bool fits = value.is_number_integer() &&
                      !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX);
    const int64_t number = fits ? value.get<int64_t>() : 0;
    if (!fits || number < low || number > high) {
      refuse("says ", in_quotes(value.dump()), " as ", what);
    }
    return number;
  }

  SavedSharding sharding(const nlohmann::json& json) const {
    if (!json.is_object()) refuse("has a layout that is no object");
    SavedSharding sharding;
    int64_t ranks = 1;
    for (const auto& axis : member(json, "axes", "array")) {
      if (!axis.is_array() || axis.size() != 2 || !axis[0].is_string()) {
        refuse("has an axis that is not a name and a size");
      }
      const int64_t size = whole(axis[1], "an axis' size", 1, kMostRanks / ranks);
      sharding.axes.push_back({axis[0].get<std::string>(), static_cast<int>(size)});
      ranks *= size;
    }
    sharding.pattern = pattern(json, sharding.axes);
    if (json.contains("parts")) add_parts(member(json, "parts", "array"), sharding);
    return sharding;
  }

  /// Makes the pattern from "cutting", and compares it with "dims".
  Pattern pattern(const nlohmann::json& json, const std::vector<MeshAxis>& axes) const {
    const nlohmann::json &dims = member(json, "dims", "array"),
                         &cutting = member(json, "cutting", "array");
    if (dims.size() != axes.size() || axes.size() > kMaxAxes || cutting.size() > kMaxDims) {
      refuse("has ", dims.size(), " placements for ", axes.size(), " axes; at most ", kMaxAxes,
             " axes, with a placement each");
    }
    const auto count = static_cast<int>(axes.size());
    Pattern pattern(count);
    Axes named;
    int twice = -1;
    for (int dim = 0; dim < static_cast<int>(cutting.size()); ++dim) {
      const nlohmann::json& listed = cutting[static_cast<size_t>(dim)];
      if (!listed.is_array()) refuse("has an order of cuts that is not a list");
      Axes order;
      for (const auto& one : listed) {
        const auto axis = static_cast<int>(whole(one, "an axis", 0, kMaxAxes));
        if (axis >= count) refuse("has a cut by axis ", axis, " of ", count);
        if (named.contains(axis)) {
          twice = axis;
          continue;
        }
        named.push_back(axis);
        order.push_back(axis);
      }
      pattern.set_order(dim, order);
    }
    for (int axis = 0; axis < count; ++axis) {
      const auto at = static_cast<size_t>(axis);
      const int64_t dim = whole(dims[at], "a dim", -1, kMaxDims - 1);
      if (dim == pattern[axis].dim() && axis != twice) continue;
      refuse("has an order of cuts that does not name axis ", in_quotes(axes[at].name),
             " once, for dim ", dim);
    }
    return pattern;
  }

  SavedTensor tensor(const nlohmann::json& json, const Manifest& manifest) const {
    const bool good = json.is_array() && json.size() == 4 && json[0].is_string() &&
                      json[1].is_string() && json[2].is_array();
    if (!good) refuse("has a tensor that is not a name, dtype, shape and layout");
    SavedTensor tensor;
    tensor.name = json[0].get<std::string>();
    const auto type = json[1].get<std::string>();
    const std::optional<DType> dtype = dtype_in_safetensors(type);
    if (!dtype) {
      fail("checkpoint: ", source_, ": tensor ", in_quotes(tensor.name), " has the dtype ",
           in_quotes(type));
    }
    tensor.dtype = *dtype;
    if (json[2].size() > kMaxDims) refuse("has a tensor of ", json[2].size(), " dims");
    for (const auto& dim : json[2]) {
      tensor.shape.push_back(whole(dim, "a dim's size", 0, INT64_MAX));
    }
    if (bytes_of(tensor.shape, tensor.dtype) < 0) {
      refuse("has a tensor ", in_quotes(tensor.name), " of more bytes than 64 bits count");
    }
    const auto layouts = static_cast<int64_t>(manifest.layouts.size());
    tensor.layout = static_cast<size_t>(whole(json[3], "a tensor's layout", 0, layouts - 1));
    check_layout(manifest, tensor);
    return tensor;
  }

  void add_parts(const nlohmann::json& parts, SavedSharding& sharding) const {
    const bool fits = parts.size() == sharding.axes.size() && !parts.empty();
    if (!fits) refuse("has parts for ", parts.size(), " of ", sharding.axes.size(), " axes");
    for (int axis = 0; axis < sharding.pattern.axes(); ++axis) {
      const nlohmann::json& listed = parts[static_cast<size_t>(axis)];
      if (!listed.is_array()) refuse("has parts that are not a list of sizes");
      if (listed.empty()) continue;
      if (!sharding.pattern[axis].is_shard()) refuse("has parts on an axis that cuts no dim");
      std::vector<int64_t> sizes;
      int64_t sum = 0;
      for (const auto& size : listed) {
        sizes.push_back(whole(size, "a part's size", 0, INT64_MAX - sum));
        sum += sizes.back();
      }
      sharding.pattern.set_sizes(axis, std::move(sizes));
    }
    try {
      if (normalised(sharding.pattern, sharding.sizes()) == sharding.pattern) return;
    } catch (const std::invalid_argument& error) {
      refuse("has parts that do not fit its axes: ", error.what());
    }
    refuse("lists the sizes of chunks as parts");
  }

  void check_layout(const Manifest& manifest, const SavedTensor& tensor) const {
    const SavedSharding& sharding = manifest.layouts[tensor.layout];
    for (const Placement& placement : sharding.pattern.placements()) {
      if (placement.dim() < tensor.shape.ndim()) continue;
      refuse("has placement ", placement, " of a tensor of ", tensor.shape.ndim(), " dims, ",
             in_quotes(tensor.name));
    }
    for (int dim = 0; dim < tensor.shape.ndim(); ++dim) {
      const int64_t size = size_by_parts(sharding.pattern, dim);
      if (size < 0 || size == tensor.shape[dim]) continue;
      refuse("has parts of ", size, " elements for dim ", dim, " of tensor ",
             in_quotes(tensor.name), ' ', tensor.shape);
    }
    int ranks = 1;
    for (const int size : sharding.sizes()) ranks *= size;
    if (!sharding.axes.empty() && ranks != manifest.ranks) {
      refuse("lays tensor ", in_quotes(tensor.name), " over ", ranks, " of ", manifest.ranks,
             " ranks");
    }
  }

  const std::string& source_;
};

}  // namespace

Manifest parsed_manifest(const std::string& source, const std::string& text) {
  return ManifestParser(source).parse(text);
}

}  // namespace weft
