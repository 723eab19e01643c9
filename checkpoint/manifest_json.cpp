// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors_header.h"
#include "weft/error.h"
#include "weft/extend/json.h"

namespace weft {

using ManifestJson = nlohmann::ordered_json;

static constexpr int kMostRanks = 1 << 20;

static ManifestJson json_of(const Cuts& cuts) {
  ManifestJson axes = ManifestJson::array(), placements = ManifestJson::array();
  for (const MeshAxis& axis : cuts.axes) axes.push_back({axis.name, axis.size});
  for (const Placement& placement : cuts.placements) placements.push_back(placement.dim());
  return {{"axes", axes}, {"dims", placements}, {"cutting", cuts.cutting}};
}

std::string text_of(const Manifest& manifest) {
  ManifestJson layouts = ManifestJson::array(), tensors = ManifestJson::array();
  for (const Cuts& cuts : manifest.layouts) layouts.push_back(json_of(cuts));
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

/// Reads the parts of a manifest; each refusal names the file and the part.
class ManifestParser {
 public:
  explicit ManifestParser(const std::string& source) : source_(source) {}

  Manifest parse(const std::string& text);

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail("checkpoint: ", source_, ": the manifest ", parts...);
  }
  const ManifestJson& member(const ManifestJson& of, const char* key, const char* kind) const {
    const auto found = of.find(key);
    if (found == of.end()) refuse("has no ", in_quotes(key));
    const std::string_view actual = found->type_name();
    if (actual != kind) refuse("has a ", actual, " as ", in_quotes(key), ", not a ", kind);
    return *found;
  }
  int64_t whole(const ManifestJson& value, const char* what, int64_t low, int64_t high) const {
    const bool fits = value.is_number_integer() &&
                      !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX);
    const int64_t number = fits ? value.get<int64_t>() : 0;
    if (!fits || number < low || number > high) {
      refuse("says ", in_quotes(value.dump()), " as ", what);
    }
    return number;
  }
  Cuts cuts(const ManifestJson& json) const;
  SavedTensor tensor(const ManifestJson& json, const Manifest& manifest) const;
  void check_layout(const Manifest& manifest, const SavedTensor& tensor) const;

  const std::string& source_;
};

Cuts ManifestParser::cuts(const ManifestJson& json) const {
  if (!json.is_object()) refuse("has a layout that is no object");
  Cuts cuts;
  for (const auto& axis : member(json, "axes", "array")) {
    if (!axis.is_array() || axis.size() != 2 || !axis[0].is_string()) {
      refuse("has an axis that is not a name and a size");
    }
    cuts.axes.push_back({axis[0].get<std::string>(),
                         static_cast<int>(whole(axis[1], "an axis' size", 1, kMostRanks))});
  }
  for (const auto& dim : member(json, "dims", "array")) {
    const auto value = static_cast<int>(whole(dim, "a dim", -1, kMaxDims - 1));
    cuts.placements.push_back(value < 0 ? Placement(Replicate()) : Placement(Shard{value}));
  }
  for (const auto& order : member(json, "cutting", "array")) {
    if (!order.is_array()) refuse("has an order of cuts that is not a list");
    auto& axes = cuts.cutting.emplace_back();
    for (const auto& axis : order) {
      axes.push_back(static_cast<int>(whole(axis, "an axis", 0, kMaxDims)));
    }
  }
  return cuts;
}

static DType dtype_of_saved(const std::string& source, const std::string& name,
                            const std::string& dtype) {
  for (int i = 0; i < kDTypes; ++i) {
    if (safetensors_name_of(static_cast<DType>(i)) == dtype) return static_cast<DType>(i);
  }
  fail("checkpoint: ", source, ": tensor ", in_quotes(name), " has the dtype ", in_quotes(dtype));
}

SavedTensor ManifestParser::tensor(const ManifestJson& json, const Manifest& manifest) const {
  const bool good = json.is_array() && json.size() == 4 && json[0].is_string() &&
                    json[1].is_string() && json[2].is_array();
  if (!good) refuse("has a tensor that is not a name, dtype, shape and layout");
  SavedTensor tensor;
  tensor.name = json[0].get<std::string>();
  tensor.dtype = dtype_of_saved(source_, tensor.name, json[1].get<std::string>());
  if (json[2].size() > kMaxDims) refuse("has a tensor of ", json[2].size(), " dims");
  auto bound = static_cast<int64_t>(size_of(tensor.dtype));
  for (const auto& dim : json[2]) {
    tensor.shape.push_back(whole(dim, "a dim's size", 0, INT64_MAX));
    if (__builtin_mul_overflow(bound, std::max<int64_t>(1, tensor.shape.back()), &bound)) {
      refuse("has a tensor ", in_quotes(tensor.name), " of more bytes than 64 bits count");
    }
  }
  const auto layouts = static_cast<int64_t>(manifest.layouts.size());
  tensor.layout = static_cast<size_t>(whole(json[3], "a tensor's layout", 0, layouts - 1));
  check_layout(manifest, tensor);
  return tensor;
}

void ManifestParser::check_layout(const Manifest& manifest, const SavedTensor& tensor) const {
  const Cuts& cuts = manifest.layouts[tensor.layout];
  check_cuts(concat("checkpoint: ", source_, ": tensor ", in_quotes(tensor.name)), cuts,
             tensor.shape.ndim());
  if (!cuts.axes.empty() && cuts.ranks() != manifest.ranks) {
    refuse("lays tensor ", in_quotes(tensor.name), " over ", cuts.ranks(), " of ", manifest.ranks,
           " ranks");
  }
}

Manifest ManifestParser::parse(const std::string& text) {
  check_json("checkpoint", source_, text);
  const auto json = ManifestJson::parse(text);
  const int64_t format = whole(member(json, "format", "number"), "its format", 0, INT64_MAX);
  if (format < 1 || format > Manifest::kFormat) {
    refuse("is of format ", format, "; this weft reads 1 to ", Manifest::kFormat);
  }
  Manifest manifest;
  manifest.format = static_cast<int>(format);
  manifest.generation = member(json, "generation", "string").get<std::string>();
  manifest.step = whole(member(json, "step", "number"), "its step", 0, INT64_MAX);
  manifest.ranks =
      static_cast<int>(whole(member(json, "ranks", "number"), "its ranks", 1, kMostRanks));
  for (const auto& layout : member(json, "layouts", "array")) {
    manifest.layouts.push_back(cuts(layout));
  }
  std::set<std::string> names;
  int64_t bytes = 0;
  for (const auto& one : member(json, "tensors", "array")) {
    manifest.tensors.push_back(tensor(one, manifest));
    const SavedTensor& last = manifest.tensors.back();
    const int64_t own = last.shape.product() * static_cast<int64_t>(size_of(last.dtype));
    if (__builtin_add_overflow(bytes, own, &bytes)) {
      refuse("has tensors of more bytes than 64 bits count");
    }
    if (!names.insert(manifest.tensors.back().name).second) {
      refuse("names tensor ", in_quotes(manifest.tensors.back().name), " twice");
    }
  }
  for (const auto& [key, number] : member(json, "numbers", "object").items()) {
    manifest.numbers.emplace(key, whole(number, "a number", INT64_MIN, INT64_MAX));
  }
  return manifest;
}

}  // namespace

Manifest parsed_manifest(const std::string& source, const std::string& text) {
  return ManifestParser(source).parse(text);
}

}  // namespace weft
