// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "checkpoint/blocks.h"
#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft {

using HeaderJson = nlohmann::json;
using HeaderEvent = HeaderJson::parse_event_t;

/// Indexed by dtype.
static constexpr std::array<std::string_view, kDTypes> kSafetensorsNames = {
    "F32", "BF16", "F16", "F64", "I32",     "I64",     "U8",  "BOOL", "I8",
    "I16", "U16",  "U32", "U64", "F8_E4M3", "F8_E5M2", "C64", ""};

int64_t bytes_of(const Shape& shape, DType dtype) {
  // A dim of 0 counts as 1 in the bound, so that strides and products of the others fit too.
  auto bound = static_cast<int64_t>(size_of(dtype));
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(bound, std::max(dim, int64_t{1}), &bound)) return -1;
  }
  return shape.product() * static_cast<int64_t>(size_of(dtype));
}

std::string_view safetensors_name_of(DType dtype) {
  const std::string_view name = kSafetensorsNames[static_cast<size_t>(dtype)];
  if (!name.empty()) return name;
  fail("safetensors: dtype of a tensor is ", dtype,
       ", expected one that the format has; save view_as_real of it");
}

std::optional<DType> dtype_in_safetensors(std::string_view name) {
  const auto found = std::ranges::find(kSafetensorsNames, name);
  if (found == kSafetensorsNames.end() || name.empty()) return {};
  return static_cast<DType>(found - kSafetensorsNames.begin());
}

/// Turns one member of the header after the other into an entry, so that no more than one of them
/// is ever held as a JSON tree.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, int64_t data_start, int64_t file_size)
      : path_(path), data_start_(data_start), data_bytes_(file_size - data_start) {}

  SafetensorsHeader parse(std::string_view text) {
    check_json("safetensors", path_, text);
    const auto whole =
        HeaderJson::parse(text, [this](int depth, HeaderEvent event, HeaderJson& parsed) {
          return on_event(depth, event, parsed);
        });
    check_coverage();
    return std::move(header_);
  }

 private:
  bool on_event(int depth, HeaderEvent event, HeaderJson& parsed) {
    if (depth == 1 && event == HeaderEvent::key) name_ = parsed.get<std::string>();
    check_nesting(depth, event);
    if (depth != 1 || event != HeaderEvent::object_end) return true;
    if (name_ == "__metadata__") {
      add_metadata(parsed);
    } else {
      add_entry(parsed);
    }
    return false;
  }

  /// Checks that depth 1 holds objects, a field a number or list, and a list numbers.
  void check_nesting(int depth, HeaderEvent event) {
    const bool list = event == HeaderEvent::array_start;
    const bool value = list || event == HeaderEvent::value || event == HeaderEvent::object_start;
    if (!value || depth == 0) return;
    const bool object = event == HeaderEvent::object_start;
    if (name_ == "__metadata__") {
      if (depth == 1 && !object) fail_file("__metadata__ is no JSON object");
      if (depth > 1 && event != HeaderEvent::value)
        fail_file("__metadata__ holds more than strings");
      return;
    }
    if (depth == 1 && !object) fail_tensor(name_, "is no JSON object");
    if (depth == 2 && object) fail_tensor(name_, "has an object as a field");
    if (depth == 2 && list) list_length_ = 0;
    if (depth != 3) return;
    if (event != HeaderEvent::value) fail_tensor(name_, "has a list or object inside a list");
    if (++list_length_ > kMaxDims) {
      fail_tensor(name_, "has a list of more than ", kMaxDims, " numbers; tensors have at most ",
                  kMaxDims, " dims");
    }
  }

  void add_metadata(const HeaderJson& object) {
    for (const auto& [key, value] : object.items()) {
      if (!value.is_string()) {
        fail_file("__metadata__ has no string at ", in_quotes(key), " but ", value.type_name());
      }
      header_.metadata.emplace(key, value.get<std::string>());
    }
  }

  void add_entry(const HeaderJson& object) {
    for (const auto& [key, value] : object.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        fail_tensor(name_, "has a field ", in_quotes(key),
                    "; the fields are dtype, shape, data_offsets");
      }
    }
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!object.contains(key)) fail_tensor(name_, "has no ", key);
    }
    const DType dtype = dtype_of(object["dtype"]);
    const Shape shape = shape_of(object["shape"]);
    const auto [begin, end] = offsets_of(object["data_offsets"]);
    const int64_t bytes = bytes_of(shape, dtype);
    if (bytes < 0) fail_tensor(name_, "of shape ", shape, " has more bytes than 64 bits count");
    if (bytes != end - begin) {
      fail_tensor(name_, "of ", dtype, ' ', shape, " has ", bytes, " bytes but data_offsets ",
                  begin, " to ", end, ", which is ", end - begin);
    }
    header_.entries.push_back({name_, dtype, shape, begin, bytes});
  }

  DType dtype_of(const HeaderJson& value) const {
    if (!value.is_string()) fail_tensor(name_, "has a dtype that is no string");
    const auto& name = value.get_ref<const std::string&>();
    if (const auto dtype = dtype_in_safetensors(name)) return *dtype;
    fail_tensor(name_, "has the dtype ", in_quotes(name), "; weft reads ",
                listed(kSafetensorsNames));
  }

  /// A whole number from 0 to 2^63 - 1 of the field `list`.
  int64_t count_of(const HeaderJson& value, const char* list) const {
    const uint64_t number = value.is_number_unsigned() ? value.get<uint64_t>() : UINT64_MAX;
    if (number > static_cast<uint64_t>(INT64_MAX)) {
      fail_tensor(name_, "has ", in_quotes(value.dump()), " in its ", list,
                  "; whole numbers from 0 on are expected");
    }
    return static_cast<int64_t>(number);
  }

  Shape shape_of(const HeaderJson& value) const {
    if (!value.is_array()) fail_tensor(name_, "has a shape that is not a list");
    Shape shape;
    for (const auto& element : value) shape.push_back(count_of(element, "shape"));
    return shape;
  }

  std::pair<int64_t, int64_t> offsets_of(const HeaderJson& value) const {
    if (!value.is_array() || value.size() != 2) {
      fail_tensor(name_, "has data_offsets that are no list of two numbers");
    }
    const int64_t begin = count_of(value[0], "data_offsets");
    const int64_t end = count_of(value[1], "data_offsets");
    if (begin > end) fail_tensor(name_, "has data_offsets from ", begin, " back to ", end);
    if (end > data_bytes_) {
      fail_tensor(name_, "ends at byte ", end, " of the data, but the file has ", data_bytes_,
                  " bytes of data; was it cut?");
    }
    return {begin, end};
  }

  void check_coverage() {
    std::sort(header_.entries.begin(), header_.entries.end(), [](const auto& a, const auto& b) {
      return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
    });
    int64_t covered = 0;
    for (auto& entry : header_.entries) {
      if (entry.offset != covered) {
        fail_tensor(
            entry.name, "starts at byte ", entry.offset, " of the data, but ",
            entry.offset < covered ? "overlaps what ends at " : "leaves a hole after what ends at ",
            covered);
      }
      covered += entry.bytes;
      entry.offset += data_start_;
    }
    if (covered != data_bytes_) {
      fail_file("the tensors end at byte ", covered, " of the data, but the file has ", data_bytes_,
                " bytes of data");
    }
  }

  template <class... Parts> [[noreturn]] void fail_file(const Parts&... parts) const {
    fail("safetensors: ", path_, ": ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void fail_tensor(const std::string& name, const Parts&... parts) const {
    fail_file("tensor ", in_quotes(name), ' ', parts...);
  }

  const std::string& path_;
  int64_t data_start_;
  int64_t data_bytes_;
  std::string name_;
  int list_length_ = 0;
  SafetensorsHeader header_;
};

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view text,
                                           int64_t data_start, int64_t file_size) {
  return HeaderParser(path, data_start, file_size).parse(text);
}

}  // namespace weft
