// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/torch_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "checkpoint/blocks.h"
#include "weft/error.h"

namespace weft {

using Kind = Pickled::Kind;

static constexpr std::array<std::pair<std::string_view, DType>, 15> kTorchDTypes = {
    {{"float32", f32},
     {"bfloat16", bf16},
     {"float16", f16},
     {"float64", f64},
     {"int32", DType::i32},
     {"int64", DType::i64},
     {"uint8", DType::u8},
     {"bool", DType::boolean},
     {"int8", DType::i8},
     {"int16", DType::i16},
     {"uint16", DType::u16},
     {"uint32", DType::u32},
     {"uint64", DType::u64},
     {"float8_e4m3fn", DType::f8_e4m3},
     {"float8_e5m2", DType::f8_e5m2}}};

DType torch_dtype(const std::string& source, const Pickled& global) {
  for (const auto& [name, dtype] : kTorchDTypes) {
    if (global.is_global(concat("torch.", name))) return dtype;
  }
  fail("checkpoint: ", source, ": the dtype is ", global.text, ", expected one that weft has");
}

std::string_view torch_name(DType dtype) {
  return std::ranges::find(kTorchDTypes, dtype, &std::pair<std::string_view, DType>::second)->first;
}

std::string torch_storage_name(DType dtype) {
  constexpr std::pair<DType, const char*> kNames[] = {
      {f32, "Float"},      {bf16, "BFloat16"},   {f16, "Half"},       {f64, "Double"},
      {DType::i32, "Int"}, {DType::i64, "Long"}, {DType::u8, "Byte"}, {DType::boolean, "Bool"},
      {DType::i8, "Char"}, {DType::i16, "Short"}};
  for (const auto& [known, name] : kNames) {
    if (known == dtype) return concat(name, "Storage");
  }
  fail("export: a tensor is ", dtype, ", expected a dtype that PyTorch's typed storages have");
}

Dims torch_sizes(const std::string& source, const Pickled& value) {
  const Pickled* list = &value;
  if (list->is_object("torch.Size") && list->items[1]->items.size() == 1)
    list = list->items[1]->items[0];
  Dims sizes;
  const auto is_size = [](const Pickled* item) {
    return item->is(Kind::number) && item->number >= 0 && item->number < int64_t{1} << 62;
  };
  if (!list->is(Kind::list) || !std::ranges::all_of(list->items, is_size) ||
      list->items.size() > static_cast<size_t>(kMaxDims)) {
    fail("checkpoint: ", source,
         ": a size or offset is something else, expected a tuple of whole numbers");
  }
  for (const Pickled* item : list->items) sizes.push_back(item->number);
  return sizes;
}

/// The globals that `torch.save` writes for tensors and plain values.
static bool is_of_data(std::string_view global) {
  return global == "torch._utils._rebuild_tensor_v2" || global == "collections.OrderedDict" ||
         global == "torch.Size" || global.starts_with("torch.serialization._get_") ||
         (global.starts_with("torch.") && global.find('.', 6) == global.npos);
}

/// A little-endian number within a text.
template <class T> static int64_t number_at(std::string_view text, size_t at) {
  T value = 0;
  if (at + sizeof(T) <= text.size()) std::memcpy(&value, text.data() + at, sizeof(T));
  return static_cast<int64_t>(value);
}

TorchFile::TorchFile(const File& file, int64_t begin, int64_t bytes)
    : file_(file), begin_(begin), bytes_(bytes), source_(file.path()), pickle_(pickle()) {}

Pickle TorchFile::pickle() const {
  if (begin_ < 0 || bytes_ < 0 || begin_ > file_.size() || bytes_ > file_.size() - begin_) {
    fail("checkpoint: ", source_, " has ", file_.size(), " bytes, expected an item of ", bytes_,
         " bytes at ", begin_);
  }
  const Member member = this->member("/data.pkl");
  return Pickle(source_, file_.text(member.offset, member.bytes), is_of_data);
}

TorchFile::Member TorchFile::member(const std::string& ending) const {
  // The end record, its 64-bit form, the directory's entries and the local headers of the zip
  // format (PKWARE's APPNOTE, 4.3.7 to 4.3.16, 4.5.3).
  constexpr int64_t kEnd = 22, kLocator = 20, kEnd64 = 56, kEntry = 46, kLocal = 30;
  const auto bad = [&](const char* what) {
    fail("checkpoint: ", source_, ": the item at byte ", begin_, " has ", what,
         ", expected a zip archive that torch.save wrote");
  };
  if (bytes_ < kEnd) bad("too few bytes");
  const int64_t tail = std::min(bytes_, kEnd + kLocator + kEnd64);
  const std::string text = file_.text(begin_ + bytes_ - tail, tail);
  const std::string_view end = std::string_view(text).substr(static_cast<size_t>(tail - kEnd));
  if (!end.starts_with("PK\5\6")) bad("no end record");
  int64_t size = number_at<uint32_t>(end, 12), start = number_at<uint32_t>(end, 16);
  if (text.starts_with("PK\6\6")) {
    size = number_at<int64_t>(text, 40);
    start = number_at<int64_t>(text, 48);
  }
  if (start < 0 || size < 0 || start > bytes_ || size > bytes_ - start) bad("no directory");
  const std::string directory = file_.text(begin_ + start, size);
  for (size_t at = 0; at + kEntry <= directory.size();) {
    const std::string_view entry = std::string_view(directory).substr(at);
    if (!entry.starts_with("PK\1\2")) bad("a damaged directory");
    const auto name_bytes = static_cast<size_t>(number_at<uint16_t>(entry, 28));
    const auto extra_bytes = static_cast<size_t>(number_at<uint16_t>(entry, 30));
    const std::string_view name = entry.substr(kEntry, name_bytes);
    at += kEntry + name_bytes + extra_bytes + static_cast<size_t>(number_at<uint16_t>(entry, 32));
    if (!name.ends_with(ending)) continue;
    int64_t bytes = number_at<uint32_t>(entry, 24), local = number_at<uint32_t>(entry, 42);
    if (entry.size() < kEntry + name_bytes + extra_bytes) bad("a damaged directory");
    const std::string_view extra = entry.substr(kEntry + name_bytes, extra_bytes);
    if (extra.size() >= 4 && number_at<uint16_t>(extra, 0) == 1) {
      // The fields that do not fit 32 bits follow in this order.
      size_t field = 4;
      if (bytes == 0xffffffff) bytes = number_at<int64_t>(extra, field), field += 8;
      if (number_at<uint32_t>(entry, 20) == 0xffffffff) field += 8;
      if (local == 0xffffffff) local = number_at<int64_t>(extra, field);
    }
    if (number_at<uint16_t>(entry, 10) != 0) bad("compressed members");
    if (local < 0 || local > bytes_ - kLocal) bad("a damaged directory");
    const std::string header = file_.text(begin_ + local, kLocal);
    const int64_t skipped =
        kLocal + number_at<uint16_t>(header, 26) + number_at<uint16_t>(header, 28);
    if (bytes < 0 || local + skipped > bytes_ || bytes > bytes_ - local - skipped) {
      bad("a member beyond its end");
    }
    return {begin_ + local + skipped, bytes};
  }
  fail("checkpoint: ", source_, ": the item at byte ", begin_, " has no member ", ending,
       ", expected an archive that torch.save wrote");
}

int64_t TorchFile::elements(DType dtype, const Shape& shape) const {
  const Pickled& tensor = value();
  const auto wrong = [&](const auto&... what) {
    fail("checkpoint: ", source_, ": the tensor at byte ", begin_, ' ', what...);
  };
  // storage, offset, size, stride, ...; a storage names itself: "storage", type, key, device,
  // count.
  const bool is_tensor = tensor.is_object("torch._utils._rebuild_tensor_v2") &&
                         tensor.items[1]->items.size() >= 4 &&
                         tensor.items[1]->items[0]->is(Kind::reference);
  if (!is_tensor) wrong("is no tensor, expected one that torch.save wrote");
  const auto& parts = tensor.items[1]->items;
  const Pickled& storage = *parts[0]->items[0];
  if (!storage.is(Kind::list) || storage.items.size() < 5) {
    wrong("has no storage, expected one that torch.save wrote");
  }
  const Dims sizes = torch_sizes(source_, *parts[2]), strides = torch_sizes(source_, *parts[3]);
  if (!(sizes == shape)) wrong("is ", sizes, ", expected ", shape, " as .metadata states");
  const Strides dense = dense_strides(shape);
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    if (shape[dim] > 1 && strides[dim] != dense[dim]) {
      wrong("has strides ", strides, ", expected those of a dense tensor ", shape);
    }
  }
  const Member data = member("/data/" + storage.items[2]->text);
  const int64_t first = parts[1]->number, element = static_cast<int64_t>(size_of(dtype));
  const int64_t bytes = bytes_of(shape, dtype);
  if (bytes < 0 || first < 0 || first > data.bytes / element ||
      bytes > data.bytes - first * element) {
    wrong("has a storage of ", data.bytes, " bytes, expected at least ", bytes, " for ", dtype, ' ',
          shape, " from element ", first);
  }
  return data.offset + first * element;
}

}  // namespace weft
