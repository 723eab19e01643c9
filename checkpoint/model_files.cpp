// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_files.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "checkpoint/blocks.h"
#include "checkpoint/source.h"
#include "weft/adapters.h"
#include "weft/error.h"
#include "weft/ops/factories.h"
#include "weft/transformer.h"

namespace weft {

// Matrices of OCP's E4M3 in blocks of 128 x 128 elements, each with a factor in the f32 matrix
// "<name>_scale_inv", as Hugging Face's "fp8" quantization stores them.
static constexpr int64_t kBlock = 128;

static int64_t blocks_of(int64_t size) { return (size + kBlock - 1) / kBlock; }

static std::string name_of_scales(const std::string& name) { return name + "_scale_inv"; }

/// True if the files hold the tensor in such blocks.
static bool is_in_float8_blocks(const TensorFiles& files, const std::string& name) {
  if (!files.contains(name_of_scales(name))) return false;
  const DType dtype = files.entry(name).dtype;
  return dtype == DType::f8_e4m3 || dtype == DType::u8;
}

/// std::invalid_argument when the factors do not fit the matrix.
static void check_float8_blocks(const TensorFiles& files, const std::string& name) {
  const SafetensorsEntry& entry = files.entry(name);
  const SafetensorsEntry& scales = files.entry(name_of_scales(name));
  if (entry.shape.ndim() != 2) {
    fail(kLoadModel, ": ", files.path(), ": tensor ", in_quotes(name), " is ", entry.shape,
         ", expected a matrix of fp8");
  }
  const Shape expected{blocks_of(entry.shape[0]), blocks_of(entry.shape[1])};
  if (scales.dtype == DType::f32 && scales.shape == expected) return;
  fail(kLoadModel, ": ", files.path(), ": tensor ", in_quotes(name_of_scales(name)), " is ",
       scales.dtype, ' ', scales.shape, ", expected f32 ", expected,
       ", a factor for each block of ", kBlock, " x ", kBlock);
}

/// Reads the elements of `box`, times their factors, to `into`, dense and row-major.
static void read_float8_blocks(const TensorFiles& files, const std::string& name, const Box& box,
                               float* into) {
  const int64_t rows = box.shape[0], columns = box.shape[1];
  if (rows == 0 || columns == 0) return;
  const Tensor codes = empty(box.shape, {.dtype = DType::f8_e4m3});
  files.read_box(name, box, codes.block().data);
  const Tensor numbers = codes.to(f32);
  const auto* values = static_cast<const float*>(numbers.block().data);
  Box around{box.offset, box.shape};
  for (int dim = 0; dim < 2; ++dim) {
    const int64_t first = box.offset[dim] / kBlock;
    around.offset[dim] = first;
    around.shape[dim] = blocks_of(box.offset[dim] + box.shape[dim]) - first;
  }
  std::vector<float> scales(static_cast<size_t>(around.shape.product()));
  files.read_box(name_of_scales(name), around, scales.data());
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t block_row = (box.offset[0] + r) / kBlock - around.offset[0];
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t block = (box.offset[1] + c) / kBlock - around.offset[1];
      const float scale = scales[static_cast<size_t>(block_row * around.shape[1] + block)];
      into[r * columns + c] = values[r * columns + c] * scale;
    }
  }
}

/// The file's tensor of a whole parameter or buffer.
static FileTensor tensor_of(const std::vector<std::string>& names, const Shape& shape) {
  const int64_t rows = shape.empty() ? 1 : shape[0];
  return {names, false, {{names[0], rows, 0, rows, rows}}};
}

/// One tensor for each slice of a stacked parameter, by the names of matrices of experts:
/// "mlp.experts.0.<leaf>.weight", "mlp.experts.1.<leaf>.weight", ... for "mlp.experts.gate_proj".
static std::vector<FileTensor> slices_of(const std::string& parameter, const std::string& leaf,
                                         int64_t count) {
  const std::string stack = parameter.substr(0, parameter.rfind('.'));
  std::vector<FileTensor> tensors;
  for (int64_t i = 0; i < count; ++i) {
    tensors.push_back({.names = {concat(stack, ".", i, ".", leaf, ".weight")},
                       .transposed = false,
                       .parts = {{.parameter = parameter, .slice = i}}});
  }
  return tensors;
}

std::vector<FileTensor> tensors_of(const std::string& name, const Shape& shape) {
  const size_t dot = name.rfind('.');
  const std::string stack = name.substr(0, dot == name.npos ? 0 : dot);
  const bool is_of_experts = stack == "experts" || stack.ends_with(".experts");
  if (!is_of_experts || shape.ndim() != 3) return {tensor_of({name}, shape)};
  return slices_of(name, name.substr(dot + 1), shape[0]);
}

/// The tensors of a parameter in `files`: it alone, or its slices where there is one for each
/// expert, under its own leaf or Mixtral's.
static std::vector<FileTensor> tensors_in(const TensorFiles& files, const NamedParameter& named) {
  static const std::map<std::string, std::string> kMixtral = {
      {"gate_proj", "w1"}, {"up_proj", "w3"}, {"down_proj", "w2"}};
  const std::string& name = named.name();
  const Shape& shape = named.parameter->shape();
  const auto is_there = [&](const std::string& other) { return files.contains(other); };
  const FileTensor whole = tensor_of(named.names, shape);
  const size_t dot = name.rfind('.');
  if (dot == name.npos || shape.ndim() < 2 || std::ranges::any_of(named.names, is_there)) {
    return {whole};
  }
  const std::string leaf = name.substr(dot + 1);
  const auto other = kMixtral.find(leaf);
  for (const std::string& in_file : {leaf, other == kMixtral.end() ? leaf : other->second}) {
    std::vector<FileTensor> slices = slices_of(name, in_file, shape[0]);
    if (!slices.empty() && is_there(slices[0].names[0])) return slices;
  }
  return {whole};
}

Shape shape_in_file(const FileTensor& tensor, const Shape& parameter) {
  Shape shape = parameter;
  if (tensor.parts[0].slice >= 0) {
    shape.erase(0);
  } else if (!shape.empty()) {
    shape[0] = 0;
    for (const FilePart& part : tensor.parts) shape[0] += part.rows;
  }
  if (tensor.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

/// The tensors of the model in its files: those of its family, and all others by their own names.
static std::vector<FileTensor> layout_of(const Module& model, const TensorFiles& files) {
  const auto* transformer = dynamic_cast<const TransformerModel*>(&model);
  std::vector<FileTensor> layout;
  std::set<std::string> placed;
  if (transformer) layout = file_tensors(transformer->config());
  for (const FileTensor& tensor : layout) {
    for (const FilePart& part : tensor.parts) placed.insert(part.parameter);
  }
  for (const NamedParameter& named : model.named_parameters()) {
    if (placed.contains(named.name())) continue;
    std::ranges::move(tensors_in(files, named), std::back_inserter(layout));
  }
  for (const NamedBuffer& buffer : model.named_buffers()) {
    if (!buffer.persistent || placed.contains(buffer.name)) continue;
    layout.push_back(tensor_of({buffer.name}, buffer.value.shape()));
  }
  return layout;
}

bool leaves_out(const Module& model, const std::string& name) {
  const auto* transformer = dynamic_cast<const TransformerModel*>(&model);
  return transformer ? is_left_out(transformer->config(), name)
                     : name.ends_with(".rotary_emb.inv_freq");
}

/// The parameters of adapters, which have their own files.
static std::set<const weft::Parameter*> adapter_parameters(const Module& model) {
  std::set<const weft::Parameter*> found;
  for (const AdaptedLinear& one : adapted_linears(const_cast<Module&>(model))) {
    for (const Module* part :
         {static_cast<Module*>(one.a.get()), static_cast<Module*>(one.b.get())})
      found.insert(part->own_parameters()[0].second.get());
  }
  return found;
}

ModelFiles::ModelFiles(const Module& model, const TensorFiles& files, SkippedKeys* skipped)
    : files_(files) {
  const std::set<const weft::Parameter*> adapters = adapter_parameters(model);
  for (const NamedParameter& named : model.named_parameters()) {
    if (!skipped && adapters.contains(named.parameter.get())) continue;
    shapes_.emplace(named.name(), named.parameter->shape());
  }
  for (const auto& [name, columns] : packed_weights(model)) {
    const auto packed = shapes_.find(name);
    if (packed != shapes_.end()) packed->second = {packed->second[0], columns};
  }
  for (const NamedBuffer& buffer : model.named_buffers()) {
    if (buffer.persistent) shapes_.emplace(buffer.name, buffer.value.shape());
  }
  std::set<std::string> known;
  for (const FileTensor& tensor : layout_of(model, files)) {
    const auto has = [&](const FilePart& part) { return shapes_.contains(part.parameter); };
    if (std::ranges::none_of(tensor.parts, has)) continue;
    const auto lost = std::ranges::find_if_not(tensor.parts, has);
    if (lost != tensor.parts.end() && !skipped) {
      fail(kLoadModel, ": ", files.path(), ": tensor ", in_quotes(tensor.names[0]), " holds ",
           in_quotes(lost->parameter), ", which the model has no parameter for");
    }
    add(tensor);
    for (const std::string& name : tensor.names) {
      if (!files.contains(name)) continue;
      known.insert(name);
      if (is_in_float8_blocks(files, name)) known.insert(name_of_scales(name));
    }
  }
  for (const auto& [parameter, tensor] : missing_) {
    // A stack of experts needs all its slices.
    if (skipped && !parameters_.contains(parameter)) {
      skipped->missing.push_back(parameter);
      continue;
    }
    fail(kLoadModel, ": ", files.path(), ": tensor ", tensor, " is missing");
  }
  std::vector<std::string> unknown = files.names();
  std::erase_if(unknown, [&](const std::string& name) {
    return known.contains(name) || leaves_out(model, name);
  });
  if (skipped) skipped->unexpected = std::move(unknown);
  if (skipped || unknown.empty()) return;
  fail(kLoadModel, ": ", files.path(), ": it holds tensor ", in_quotes(unknown[0]),
       unknown.size() > 1 ? concat(" and ", unknown.size() - 1, " others") : "",
       ", which the model has no parameter for");
}

/// Checks the shape and the dtype of a tensor.
static void check_fits(const TensorFiles& files, const std::string& name, const Shape& expected) {
  const SafetensorsEntry& entry = files.entry(name);
  if (!(entry.shape == expected)) {
    fail(kLoadModel, ": ", files.path(), ": tensor ", in_quotes(name), " is ", entry.shape,
         " but the parameter ", expected);
  }
  if (is_in_float8_blocks(files, name)) return check_float8_blocks(files, name);
  if (!is_floating(entry.dtype) || size_of(entry.dtype) == 1) {
    fail(kLoadModel, ": ", files.path(), ": tensor ", in_quotes(name), " is of ", entry.dtype,
         size_of(entry.dtype) == 1 && is_floating(entry.dtype)
             ? concat(", expected f8_e4m3 with factors in ", in_quotes(name_of_scales(name)))
             : ", expected a floating dtype");
  }
}

static DType dtype_in(const TensorFiles& files, const std::string& name) {
  return is_in_float8_blocks(files, name) ? DType::f32 : files.entry(name).dtype;
}

void ModelFiles::add(const FileTensor& tensor) {
  std::vector<std::string> there;
  for (const std::string& name : tensor.names) {
    if (files_.contains(name)) there.push_back(name);
  }
  for (const FilePart& part : tensor.parts) {
    if (!shapes_.contains(part.parameter)) continue;
    if (!there.empty()) {
      add_part(tensor, part, there);
    } else {
      const std::string other =
          tensor.names.size() > 1 ? concat(" (or ", in_quotes(tensor.names[1]), ")") : "";
      missing_.emplace(part.parameter, in_quotes(tensor.names[0]) + other);
    }
  }
}

void ModelFiles::add_part(const FileTensor& tensor, const FilePart& part,
                          const std::vector<std::string>& there) {
  const Shape& shape = shapes_.at(part.parameter);
  const DType dtype = dtype_in(files_, there[0]);
  for (const std::string& name : there) {
    check_fits(files_, name, shape_in_file(tensor, shape));
    if (dtype_in(files_, name) == dtype) continue;
    fail(kLoadModel, ": ", files_.path(), ": tensor ", in_quotes(name), " is of ",
         dtype_in(files_, name), ", expected ", dtype, " as ", in_quotes(there[0]));
  }
  if (tensor.transposed && is_in_float8_blocks(files_, there[0])) {
    fail(kLoadModel, ": ", files_.path(), ": tensor ", in_quotes(there[0]),
         " is a transposed matrix of f8_e4m3, expected f32, bf16 or f16");
  }
  const auto at =
      parameters_
          .emplace(part.parameter, Parameter{dtype, shape, there, tensor.transposed, part, {}})
          .first;
  if (part.slice < 0) return;
  if (there.size() > 1) {
    fail(kLoadModel, ": ", files_.path(), ": tensors ", in_quotes(there[0]), " and ",
         in_quotes(there[1]), " are one expert's, expected one of them");
  }
  Parameter& parameter = at->second;
  if (parameter.dtype != dtype) {
    fail(kLoadModel, ": ", files_.path(), ": tensor ", in_quotes(there[0]), " is of ", dtype,
         ", expected ", parameter.dtype, " as the other slices of ", in_quotes(part.parameter));
  }
  parameter.part.block = std::numeric_limits<int64_t>::max();
  parameter.slices.resize(static_cast<size_t>(shape[0]));
  parameter.slices[static_cast<size_t>(part.slice)] = there[0];
}

void ModelFiles::read_box(const std::string& name, const Box& box, void* into, size_t alias) const {
  const Parameter& parameter = parameters_.at(name);
  if (parameter.slices.empty()) {
    return read_rows(parameter, parameter.names[alias], box, into);
  }
  Box inner = box;
  inner.offset.erase(0), inner.shape.erase(0);
  const int64_t bytes = bytes_of(inner.shape, parameter.dtype);
  for (int64_t i = 0; i < box.shape[0] && bytes > 0; ++i) {
    const std::string& tensor = parameter.slices[static_cast<size_t>(box.offset[0] + i)];
    read_rows(parameter, tensor, inner, static_cast<std::byte*>(into) + i * bytes);
  }
}

void ModelFiles::read_rows(const Parameter& parameter, const std::string& tensor, const Box& box,
                           void* into) const {
  const FilePart& part = parameter.part;
  const bool is_float8 = is_in_float8_blocks(files_, tensor);
  const auto element = static_cast<int64_t>(size_of(parameter.dtype));
  if (box.shape.empty()) return files_.read_box(tensor, box, into);
  const int64_t end = box.offset[0] + box.shape[0];
  const int64_t row_bytes = box.shape[0] ? box.shape.product() / box.shape[0] * element : 0;
  auto* at = static_cast<std::byte*>(into);
  for (int64_t row = box.offset[0]; row < end;) {
    const int64_t block = row / part.block, within = row % part.block;
    const int64_t count = std::min(end - row, part.block - within);
    Box there = box;
    there.offset[0] = part.offset + block * part.stride + within;
    there.shape[0] = count;
    if (is_float8 && !parameter.transposed) {
      read_float8_blocks(files_, tensor, there, reinterpret_cast<float*>(at));
    } else if (parameter.transposed) {
      std::swap(there.offset[0], there.offset[1]), std::swap(there.shape[0], there.shape[1]);
      std::vector<std::byte> columns(static_cast<size_t>(count * row_bytes));
      files_.read_box(tensor, there, columns.data());
      transpose_bytes(columns.data(), there.shape[0], there.shape[1], element, at);
    } else {
      files_.read_box(tensor, there, at);
    }
    at += count * row_bytes;
    row += count;
  }
}

void transpose_bytes(const std::byte* from, int64_t rows, int64_t columns, int64_t element,
                     std::byte* to) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(to + (c * rows + r) * element, from + (r * columns + c) * element,
                  static_cast<size_t>(element));
    }
  }
}

std::map<std::string, std::string> tied_names(const TransformerConfig& config) {
  std::map<std::string, std::string> tied;
  const TransformerModel model(config);
  for (const NamedParameter& named : model.named_parameters()) {
    for (const std::string& name : named.names) tied.emplace(name, named.name());
    tied.erase(named.name());
  }
  return tied;
}

std::string difference_of_tied(const CheckpointSource& source, const ExportOptions& options) {
  if (!options.config) return "";
  for (const auto& [other, first] : tied_names(*options.config)) {
    std::vector<Tensor> both;
    for (const std::string& name : {first, other}) {
      const auto found = source.contents.tensors.find(options.prefix + name);
      if (found == source.contents.tensors.end()) break;
      both.push_back(empty(found->second.shape, {.dtype = found->second.dtype}));
      read_wishes(source, {{found->first, both.back().box(),
                            static_cast<std::byte*>(both.back().block().data)}});
    }
    if (both.size() < 2) continue;
    const bool fits = both[0].shape() == both[1].shape() && both[0].dtype() == both[1].dtype();
    const auto bytes = static_cast<size_t>(bytes_of(both[0].shape(), both[0].dtype()));
    if (fits && std::memcmp(both[0].block().data, both[1].block().data, bytes) == 0) continue;
    return concat("export: ", source.path, ": tensors ", in_quotes(first), " and ",
                  in_quotes(other),
                  " differ, expected equal ones; they are one tied parameter of the model");
  }
  return "";
}

}  // namespace weft
