// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dnnl.hpp>

#include "weft/dtype.h"

namespace weft {

// Engine, stream and descriptions of all primitives of oneDNN.

dnnl::engine& onednn_engine();
/// The calling thread's stream.
dnnl::stream& onednn_stream();
/// Throws when a new primitive could lack memory.
void check_memory_for_primitive();

inline dnnl::memory::data_type onednn_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// The description of a primitive; `hint` is that of the forward one, for gradients. oneDNN 3 has
/// no separate descriptors of operations.
template <class P, class Hint, class... Args>
typename P::primitive_desc described_gradient(const dnnl::primitive_attr& attributes,
                                              const Hint& hint, const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), args..., hint, attributes};
#else
  return {typename P::desc(args...), attributes, onednn_engine(), hint};
#endif
}
template <class P, class... Args>
typename P::primitive_desc described(const dnnl::primitive_attr& attributes, const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), args..., attributes};
#else
  return {typename P::desc(args...), attributes, onednn_engine()};
#endif
}

}  // namespace weft
