// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// A named slot of a module. Its tensors may be replaced (sharded, gathered, loaded), and all
/// holders of the slot see the current ones. Tied names share one Parameter.
class WEFT_API Parameter {
 public:
  /// Sets the elements that this rank holds, of a tensor of any layout, to their initial values.
  using Initializer = std::function<void(const Tensor&)>;

  /// Declares a parameter without memory: its value is on device `meta`.
  Parameter(const Shape& shape, DType dtype, Initializer initializer);

  /// The tensor at rest, which optimizers update and checkpoints contain.
  const Tensor& value() const { return value_; }
  /// The tensor that forward uses. std::runtime_error when it was made from a value that has
  /// changed since; the next forward makes it again.
  const Tensor& tensor() const {
    if (!used_) return value_;
    if (used_version_ && *used_version_ != value_.storage()->version()) [[unlikely]]
      fail_stale();
    return used_;
  }
  /// Device on which forward computes.
  Device device() const { return used_ ? used_.device() : value_.device(); }
  const Shape& shape() const { return value_.shape(); }
  DType dtype() const { return value_.dtype(); }
  /// Gradient of the value, in its layout; an empty tensor before backward.
  Tensor grad() const { return value_.grad(); }
  void clear_grad() const;

  bool is_trainable() const { return trainable_; }
  /// Freezes or unfreezes the parameter; of a sharded model between steps, without gradients. Hooks
  /// of its gradient stay.
  void set_trainable(bool trainable);

  /// Replaces the value; the shape stays. A value with memory counts as initialized: `materialize`
  /// leaves it unchanged. The parameter shares the elements of `value` (clone it to keep both
  /// apart), except that it copies them when forward uses another tensor or when they
  /// are not dense. `value` itself does not become a leaf.
  void set_value(Tensor value);
  bool is_materialized() const { return value_.device().kind != DeviceKind::meta; }
  /// Allocates a declared parameter that has no memory yet and sets its initial values. Has no
  /// effect the second time.
  void materialize(Device device);
  const Initializer& initializer() const { return initializer_; }
  /// Replaces the initial values of a parameter that has none yet.
  void set_initializer(Initializer initializer) { initializer_ = std::move(initializer); }

 private:
  friend struct ModuleSharder;
  [[noreturn]] void fail_stale() const;
  void lay_out(Tensor value);

  Tensor value_;
  /// Has the hooks of a frozen parameter's gradient.
  Tensor hooked_;
  /// The tensor that forward uses instead of the value, if there is one, and the version of the
  /// value's storage that it was made from.
  Tensor used_;
  std::optional<uint64_t> used_version_;
  Initializer initializer_;
  std::function<void()> lazy_init_;
  bool trainable_ = true;
  bool initialized_ = false;
  /// Identify the parameter and the sharded model that it is part of, alike on all ranks; 0:
  /// unknown.
  uint64_t subject_ = 0, model_ = 0;
  /// The object that shards the parameter together with others; empty without one.
  std::weak_ptr<void> sharder_;
};

using ParameterPtr = std::shared_ptr<Parameter>;

/// A parameter and all its names in a module, e.g. "layers.0.attention.wq.weight".
struct NamedParameter {
  std::vector<std::string> names;
  ParameterPtr parameter;
  const std::string& name() const { return names.front(); }
};

}  // namespace weft
