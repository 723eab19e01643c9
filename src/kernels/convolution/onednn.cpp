// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/convolution/onednn.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/kernels/matmul/onednn.h"
#include "src/kernels/matmul/product.h"
#include "src/kernels/matmul/tasks.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {
namespace convolving {
namespace {

using Sizes = dnnl::memory::dims;
using dnnl::memory;

/// Everything that a primitive depends on, as numbers.
using ConvolutionKey = std::vector<int64_t>;
struct ConvolutionHash {
  size_t operator()(const ConvolutionKey& key) const {
    return xxh3_of(std::as_bytes(std::span(key)));
  }
};

/// One of image, filter and result: as it is in memory, and as the primitive takes it.
struct Part {
  memory::desc own, taken;
  dnnl::reorder reorder = {};
};

/// A primitive with the conversions of its operands and of its result.
struct ConvolutionPrimitive {
  dnnl::primitive primitive;
  Part image, filter, result;
  memory::desc scratch;
  /// False where oneDNN has only a reference implementation.
  bool is_fast = false;
};

/// The arguments of one call.
struct Given {
  Convolved what;
  const Taps& taps;
  const MemoryBlock &image, &filter, &result;

  Sizes shape_of(const MemoryBlock& block) const {
    Sizes sizes(block.shape.begin(), block.shape.end());
    if (&block == &filter && taps.groups > 1) {
      sizes[0] /= taps.groups;
      sizes.insert(sizes.begin(), taps.groups);
    }
    return sizes;
  }
  Sizes strides_of(const MemoryBlock& block) const {
    Sizes strides(block.strides.begin(), block.strides.end());
    if (&block == &filter && taps.groups > 1) {
      strides.insert(strides.begin(), strides[0] * (filter.shape[0] / taps.groups));
    }
    return strides;
  }
  memory::desc own(const MemoryBlock& block) const {
    return {shape_of(block), onednn_type(block.dtype), strides_of(block)};
  }
  memory::desc any(const MemoryBlock& block) const {
    return {shape_of(block), onednn_type(block.dtype), memory::format_tag::any};
  }

  Sizes each(const std::array<int64_t, 3>& numbers, int64_t less = 0) const {
    Sizes sizes;
    for (int d = 0; d < taps.ndim; ++d) sizes.push_back(numbers[static_cast<size_t>(d)] - less);
    return sizes;
  }
  /// The zeros behind the image that the last results read.
  Sizes after() const {
    Sizes sizes;
    for (int d = 0; d < taps.ndim; ++d) {
      const auto i = static_cast<size_t>(d);
      const int64_t reach = taps.dilation[i] * (filter.shape[d + 2] - 1) + 1;
      sizes.push_back((result.shape[d + 2] - 1) * taps.stride[i] + reach - image.shape[d + 2] -
                      taps.before[i]);
    }
    return sizes;
  }

  ConvolutionKey key() const {
    ConvolutionKey key = {static_cast<int64_t>(what), taps.ndim, taps.groups,
                          static_cast<int64_t>(image.dtype), usable_threads()};
    for (const auto* numbers : {&taps.stride, &taps.dilation, &taps.before}) {
      key.insert(key.end(), numbers->begin(), numbers->end());
    }
    for (const MemoryBlock* block : {&image, &filter, &result}) {
      key.insert(key.end(), block->shape.begin(), block->shape.end());
      key.insert(key.end(), block->strides.begin(), block->strides.end());
    }
    return key;
  }
};

Part part_of(const memory::desc& own, const memory::desc& taken, bool is_computed) {
  Part part{own, taken};
  if (own == taken) return part;
  const auto &from = is_computed ? taken : own, &to = is_computed ? own : taken;
  part.reorder = dnnl::reorder({onednn_engine(), from, onednn_engine(), to});
  return part;
}

void finish(ConvolutionPrimitive& made, const Given& given, const auto& chosen,
            const memory::desc& image, const memory::desc& filter, const memory::desc& result) {
  const std::string_view name = chosen.impl_info_str();
  made.is_fast = name.find("ref") == name.npos;
  if (!made.is_fast) return;
  made.scratch = chosen.scratchpad_desc();
  made.image = part_of(given.own(given.image), image, given.what == Convolved::image);
  made.filter = part_of(given.own(given.filter), filter, given.what == Convolved::filter);
  made.result = part_of(given.own(given.result), result, given.what == Convolved::result);
}

ConvolutionPrimitive made_for(const Given& given) {
  using F = dnnl::convolution_forward;
  using I = dnnl::convolution_backward_data;
  using W = dnnl::convolution_backward_weights;
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto direct = dnnl::algorithm::convolution_direct;
  const memory::desc image = given.any(given.image), filter = given.any(given.filter);
  const memory::desc result = given.any(given.result);
  const Sizes stride = given.each(given.taps.stride), before = given.each(given.taps.before);
  const Sizes dilation = given.each(given.taps.dilation, 1), after = given.after();
  ConvolutionPrimitive made;
  const auto forward = described<F>(attributes, dnnl::prop_kind::forward_training, direct, image,
                                    filter, result, stride, dilation, before, after);
  if (given.what == Convolved::result) {
    finish(made, given, forward, forward.src_desc(), forward.weights_desc(), forward.dst_desc());
    if (made.is_fast) made.primitive = F(forward);
  } else if (given.what == Convolved::image) {
    const auto chosen = described_gradient<I>(attributes, forward, direct, image, filter, result,
                                              stride, dilation, before, after);
    finish(made, given, chosen, chosen.diff_src_desc(), chosen.weights_desc(),
           chosen.diff_dst_desc());
    if (made.is_fast) made.primitive = I(chosen);
  } else {
    const auto chosen = described_gradient<W>(attributes, forward, direct, image, filter, result,
                                              stride, dilation, before, after);
    finish(made, given, chosen, chosen.src_desc(), chosen.diff_weights_desc(),
           chosen.diff_dst_desc());
    if (made.is_fast) made.primitive = W(chosen);
  }
  return made;
}

const ConvolutionPrimitive& primitive_for(const Given& given) {
  using Table = std::unordered_map<ConvolutionKey, ConvolutionPrimitive, ConvolutionHash>;
  WEFT_STATIC_TLS static thread_local const auto table = std::make_unique<Table>();
  constexpr size_t kMostPrimitives = 256;
  ConvolutionKey key = given.key();
  const auto found = table->find(key);
  if (found != table->end()) return found->second;
  if (table->size() == kMostPrimitives) table->clear();
  check_memory_for_primitive();
  ConvolutionPrimitive made;
  try {
    made = made_for(given);
  } catch (const dnnl::error& error) {
    // oneDNN refuses some geometries, as padding beyond the filter.
    if (error.status != dnnl_unimplemented && error.status != dnnl_invalid_arguments) throw;
  }
  return table->emplace(std::move(key), std::move(made)).first->second;
}

/// The memory of a part for the primitive, converted to its format if it is an operand.
memory taken_by(const Part& part, const MemoryBlock& block, bool is_computed,
                ScratchMemory& scratch) {
  const memory own(part.own, onednn_engine(), block.data);
  if (part.own == part.taken) return own;
  memory taken(part.taken, onednn_engine(), scratch.take_bytes(part.taken.get_size()));
  if (!is_computed) {
    part.reorder.execute(onednn_stream(), {{DNNL_ARG_FROM, own}, {DNNL_ARG_TO, taken}});
  }
  return taken;
}

void give_back(const Part& part, const memory& taken, const MemoryBlock& block) {
  if (part.own == part.taken) return;
  const memory own(part.own, onednn_engine(), block.data);
  part.reorder.execute(onednn_stream(), {{DNNL_ARG_FROM, taken}, {DNNL_ARG_TO, own}});
}

void run(const ConvolutionPrimitive& made, const Given& given) {
  ScratchMemory scratch;
  const bool to_image = given.what == Convolved::image, to_filter = given.what == Convolved::filter;
  const bool forward = given.what == Convolved::result;
  const memory image = taken_by(made.image, given.image, to_image, scratch);
  const memory filter = taken_by(made.filter, given.filter, to_filter, scratch);
  const memory result = taken_by(made.result, given.result, forward, scratch);
  const size_t bytes = made.scratch.get_size();
  const memory work(made.scratch, onednn_engine(), bytes ? scratch.take_bytes(bytes) : nullptr);
  made.primitive.execute(onednn_stream(),
                         {{to_image ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, image},
                          {to_filter ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, filter},
                          {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, result},
                          {DNNL_ARG_SCRATCHPAD, work}});
  if (to_image) give_back(made.image, image, given.image);
  if (to_filter) give_back(made.filter, filter, given.filter);
  if (forward) give_back(made.result, result, given.result);
}

/// False for gradients of filters that oneDNN 2.6 and 3.x get wrong: those of taps that read
/// padding alone are not written, and with a depth of padding above half the filter's reach the
/// first ones are not.
bool writes_all_taps(const Given& given) {
  if (given.what != Convolved::filter) return true;
  const Taps& taps = given.taps;
  for (int d = 0; d < taps.ndim; ++d) {
    const int64_t size = given.image.shape[d + 2], results = given.result.shape[d + 2];
    const int64_t count = given.filter.shape[d + 2];
    const auto at = static_cast<size_t>(d);
    if (taps.ndim == 3 && d == 0 && 2 * taps.before[at] > (count - 1) * taps.dilation[at]) {
      return false;
    }
    for (int64_t tap = 0; tap < count; ++tap) {
      if (reached(taps, d, tap, results, size).count <= 0) return false;
    }
  }
  return true;
}

/// True for blocks that oneDNN may compute with.
bool takes(const Given& given) {
  const DType dtype = given.image.dtype;
  const bool typed = dtype == DType::f32 || (dtype == DType::bf16 && has_bf16_instructions());
  // oneDNN computes with int.
  const auto is_small = [](int64_t n) { return n >= 0 && n <= 1 << 15; };
  const bool small = std::ranges::all_of(given.taps.before, is_small) &&
                     std::ranges::all_of(given.taps.stride, is_small) &&
                     std::ranges::all_of(given.taps.dilation, is_small);
  return typed && small && writes_all_taps(given) && given.image.device.kind != DeviceKind::cuda &&
         given.image.numel() > 0 && given.filter.numel() > 0 && given.result.numel() > 0;
}

}  // namespace
}  // namespace convolving

bool convolve_by_onednn(Convolved what, const Taps& taps, const MemoryBlock& image,
                        const MemoryBlock& filter, const MemoryBlock& result) {
  using namespace convolving;
  const Given given{what, taps, image, filter, result};
  if (!takes(given)) return false;
  const ConvolutionPrimitive& made = primitive_for(given);
  if (!made.is_fast) return false;
  run(made, given);
  return true;
}

}  // namespace weft
