// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/stream.h"
#include "weft/tensor.h"

namespace weft {

/// Receives the gradient of a leaf in place of `grad()`. Contributions are added one by one;
/// `complete` follows the last one of a backward. A nested backward (recompute) calls it too,
/// unless the outer one expects more contributions to the leaf: two nested ones may complete it
/// twice.
class WEFT_API GradientSink {
 public:
  virtual ~GradientSink() = default;
  struct Destination {
    /// Memory of the leaf's shape in the layout of the contributions (Partial where they are
    /// reduced later).
    Tensor tensor;
    /// True when `tensor` holds earlier contributions, to which the next one is added.
    bool accumulate;
  };
  /// Called before each contribution.
  virtual Destination destination() = 0;
  virtual void complete() = 0;
  /// Takes the gradient that a backward with `create_graph` has recorded, instead of the calls
  /// above. std::invalid_argument unless overridden.
  virtual void receive(const Tensor& gradient);
};

/// Sends the gradient of the leaf to `sink` instead of `grad()`.
WEFT_API void set_gradient_sink(const Tensor& leaf, std::shared_ptr<GradientSink> sink);

/// Records `outputs` as computed from `inputs` by something other than an op. When the outputs'
/// gradients are complete, `function` receives them (an empty tensor for an output that nothing
/// depends on) and returns the gradients of the inputs. Returns new handles of the outputs, which
/// require a gradient even if no input does.
using BackwardFunction = std::function<Tensors(const Tensors& gradients)>;
WEFT_API Tensors record(const char* name, const Tensors& inputs, const Tensors& outputs,
                        BackwardFunction function);

/// The same for outputs of a function that backward runs again, by `repeated_gradients`.
WEFT_API Tensors record_repeated(const char* name, const Tensors& inputs, const Tensors& outputs,
                                 BackwardFunction function);
/// True when the backward that runs now differs from a plain one: it records what it computes,
/// keeps the tape, or computes the gradients of chosen tensors. False outside of backward.
WEFT_API bool backward_is_special();
/// True when it records what it computes, so that its gradients can be differentiated.
WEFT_API bool backward_creates_graph();
/// False in a backward for `grad`, and in one with `create_graph`: they write to no sink.
WEFT_API bool backward_fills_sinks();
/// The gradients of `inputs`, for the special backward that runs now. The run ends at the inputs;
/// gradients of leaves go where those of that backward do.
WEFT_API Tensors repeated_gradients(const Tensors& outputs, const Tensors& gradients,
                                    const Tensors& inputs);
/// Returns `value` as input `i` of the function whose backward runs now, connected with what
/// computed that input.
WEFT_API Tensor as_input(size_t i, const Tensor& value);
WEFT_API Tensor as_output(size_t i, const Tensor& value);
/// Throws std::invalid_argument "<name>: ...; <cure>" in a backward that creates a graph, for a
/// backward function that records nothing.
WEFT_API void check_first_order(const char* name, const char* cure);

/// Gradients of `leaf` go to `used`, a leaf that forward uses in its place.
WEFT_API void set_used_leaf(const Tensor& leaf, const Tensor& used);
/// Moves the hooks of a leaf to the one that takes its place.
WEFT_API void move_gradient_hooks(const Tensor& from, const Tensor& to);
/// A backward of the calling rank calls `gather` where it reads the tensor's storage and finds it
/// unbound; an empty function ends that.
WEFT_API void set_gatherer(const Tensor& tensor, std::function<void()> gather);
/// Runs the hooks that follow the accumulation of the leaf's gradient, if it has one.
WEFT_API void run_post_accumulate_hooks(const Tensor& leaf);

/// Returns the stream on which the calling rank's outermost backward began, or the current one
/// outside of backward. What was recorded on `StreamRole::side` runs on that stream instead.
WEFT_API Stream backward_stream(Device device);

/// Runs `function` when the outermost backward of this rank has ended, or immediately when none is
/// running. `failed` is true when that backward threw.
WEFT_API void after_backward(std::function<void(bool failed)> function);

/// Results of some ops of a function, which a repeated run takes instead of computing them again.
class WEFT_API KeptResults {
 public:
  /// Takes the names of the ops. Throws std::invalid_argument for a name that no built-in op has.
  explicit KeptResults(std::vector<std::string> ops);

  enum class Run : uint8_t { first, repeated };
  /// Keeps the results of the ops that the calling rank runs in the scope, or takes them in the
  /// same order. Null: neither, also within another scope.
  class WEFT_API Scope : NotCopied {
   public:
    Scope(KeptResults* results, Run run);
    ~Scope();

   private:
    KeptResults* before_;
    Run run_before_;
  };

  /// Hands over all results between the two runs, in order, and takes them back before the second.
  /// std::invalid_argument if one has changed in place.
  Tensors release();
  void restore(Tensors results);

  // Called by the engine.
  /// Keeps the results of a call of the first run, if the op is one of these.
  void keep(const std::string& op, std::span<const Tensor> results);
  /// Returns the results of the next call in the order of the first run; none in that run itself,
  /// and for other ops. std::invalid_argument if that call was one of another op, or its results
  /// have changed in place.
  Tensors take(const std::string& op);

 private:
  struct Kept {
    std::string op;
    Tensors results;
    std::vector<uint64_t> versions;
    /// std::invalid_argument if a result has changed since it was kept.
    void check_versions() const;
  };
  /// True when the results of the op are kept, or taken, in that run.
  bool concerns(const std::string& op, Run run) const;

  std::vector<std::string> ops_;
  std::vector<Kept> kept_;
  size_t next_ = 0;
  Run run_ = Run::first;
};

}  // namespace weft
