// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// A named slot of a module. What lies in it may be exchanged (sharded, gathered, loaded); who
/// holds the slot always sees what is in force. Tied names are one Parameter.
class WEFT_API Parameter {
 public:
  /// Fills a tensor (of any layout) with the initial values of the whole's elements that it holds.
  using Initializer = std::function<void(const Tensor&)>;

  /// Declared, not made: on device `meta`.
  Parameter(const Shape& shape, DType dtype, Initializer initializer);

  /// As it is at rest: what optimizers change and checkpoints hold.
  const Tensor& value() const { return value_; }
  /// What forward computes with. std::runtime_error when that was made of a value which has changed
  /// since: the next forward makes it anew.
  const Tensor& tensor() const {
    if (!used_) return value_;
    if (used_version_ && *used_version_ != value_.storage()->version()) [[unlikely]]
      fail_stale();
    return used_;
  }
  /// Where forward computes.
  Device device() const { return used_ ? used_.device() : value_.device(); }
  const Shape& shape() const { return value_.shape(); }
  DType dtype() const { return value_.dtype(); }
  /// Of the value, in its layout; no tensor before backward.
  Tensor grad() const { return value_.grad(); }
  void clear_grad() const;

  bool is_trainable() const { return trainable_; }
  /// Freezes or thaws; before sharding.
  void set_trainable(bool trainable);

  /// Exchanges what lies in the slot; the shape stays. What has memory is the value: `materialize`
  /// leaves it. The value shares the elements given, as another parameter's (detach and clone them
  /// to keep both apart), but where something else than the value is used (set_used) or they do not
  /// lie densely: copied. The tensor given is no leaf by that.
  void set_value(Tensor value);
  /// The same for who lays the value out in another way: `materialize` does what it did before.
  void lay_out(Tensor value);
  /// What forward uses instead of the value; an empty handle takes it back.
  void set_used(Tensor used) {
    used_ = std::move(used);
    used_version_ = {};
  }
  bool has_used() const { return static_cast<bool>(used_); }
  /// What is used was made of the value at that version of its storage.
  void used_is_of(uint64_t version) { used_version_ = version; }
  /// What gives the value its final layout, if it has not got it yet.
  void set_settler(std::function<void()> settler) { settler_ = std::move(settler); }
  /// For who keeps tensors that lie as the value does.
  void settle() const {
    if (settler_) settler_();
  }

  bool is_materialized() const;
  /// Gives a declared parameter memory (when nobody did) and its initial values; nothing the second
  /// time.
  void materialize(Device device);
  const Initializer& initializer() const { return initializer_; }
  /// Other initial values, of a parameter that has none yet.
  void set_initializer(Initializer initializer) { initializer_ = std::move(initializer); }

 private:
  [[noreturn]] void fail_stale() const;

  Tensor value_;
  Tensor used_;
  std::optional<uint64_t> used_version_;
  Initializer initializer_;
  std::function<void()> settler_;
  bool trainable_ = true;
  bool initialized_ = false;
};

using ParameterPtr = std::shared_ptr<Parameter>;

/// A parameter and all the names it has in a module, e.g. "layers.0.attention.wq.weight".
struct NamedParameter {
  std::vector<std::string> names;
  ParameterPtr parameter;
  const std::string& name() const { return names.front(); }
};

}  // namespace weft
