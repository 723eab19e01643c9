// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "mesh/layout.h"
#include "ops/autograd/node.h"
#include "weft/tensor.h"

namespace weft {

/// What a Tensor points to: where the elements are, and where its gradient goes.
struct TensorBody final : public RefCounted {
  Ref<Layout> layout;
  Ref<Storage> storage;
  /// Elements from the storage's start to this rank's first one.
  int64_t offset = 0;
  /// Of this rank's part.
  Strides strides;
  /// What computed it, or the leaf's own node; none when no gradient is wanted.
  Ref<Node> node;
  /// Which result of the node it is.
  int result = 0;

  Block block() const;

  static void* operator new(size_t bytes);
  static void operator delete(void* memory);
  static void destroy(TensorBody* body) { delete body; }
};

/// A tensor over memory that is there.
Tensor make_tensor(Ref<Layout> layout, Ref<Storage> storage, int64_t offset,
                   const Strides& strides);
/// A tensor with new, dense memory that is not initialised.
Tensor new_tensor(Ref<Layout> layout, Device device);
/// The same memory under another layout of the same local shape.
Tensor relabeled(const Tensor& tensor, Ref<Layout> layout);

inline const Ref<Layout>& layout_of(const Tensor& tensor) { return tensor.body()->layout; }

/// std::invalid_argument "<what>: no tensor" for an empty handle.
void check_tensor(const char* what, const Tensor& tensor);

}  // namespace weft
