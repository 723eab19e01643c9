// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "weft/context.h"
#include "weft/export.h"
#include "weft/module.h"
#include "weft/optimizers.h"

namespace weft {

class Ema;
class LossScaler;
class NonFinitePolicy;
class OptimizerKeys;

/// The state of an object, by name: tensors, which share their elements with the object and keep
/// their layouts, and whole numbers, equal on all ranks.
struct StateDict {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, int64_t> numbers;
};

/// "12 tensors, 1.2 MB, 3 numbers".
WEFT_API std::ostream& operator<<(std::ostream& out, const StateDict& state);

/// Every parameter by its first name, as it is at rest, and every persistent buffer. No traffic.
/// std::invalid_argument when one has no memory yet.
WEFT_API StateDict state_dict(const Module& module);
/// "<parameter>.<moment>" by tensor; as numbers "<parameter>.steps", and the bits of the options:
/// "<option>" of the first parameter's group ("learning_rate" for "lr"), and "<parameter>.<option>"
/// of each parameter of another group whose option differs.
WEFT_API StateDict state_dict(Optimizer& optimizer);
/// The averages, by the parameters' names, and as numbers "decay", as bits, and "updates".
WEFT_API StateDict state_dict(Ema& ema);

/// Keys that were not loaded, sorted.
struct SkippedKeys {
  /// The receiver has them, the dict does not.
  std::vector<std::string> missing;
  /// The dict has them, the receiver does not.
  std::vector<std::string> unexpected;
  bool empty() const { return missing.empty() && unexpected.empty(); }
  bool operator==(const SkippedKeys&) const = default;
};

/// Copies the elements of `from` into the module; a tensor that already is the module's own is left
/// alone. Elements move where the layouts differ; what is whole on each rank is sliced. A tied
/// parameter goes by any of its names. std::invalid_argument, before anything is changed, for a
/// shape or dtype that does not fit, and naming the keys when one is missing or unexpected.
/// Allocates parameters that have no memory yet. An optimizer's groups may differ from those that
/// were saved; std::invalid_argument when parameters of one group were saved with different
/// options.
WEFT_API void load_state_dict(Module& module, const StateDict& from);
WEFT_API void load_state_dict(Optimizer& optimizer, const StateDict& from);
WEFT_API void load_state_dict(Ema& ema, const StateDict& from);
/// The same for the tensors of two dicts.
WEFT_API void load_tensors(const StateDict& to, const StateDict& from);
/// The same for the keys that both have; gives the others.
[[nodiscard]] WEFT_API SkippedKeys load_common_keys(Module& module, const StateDict& from);
[[nodiscard]] WEFT_API SkippedKeys load_common_keys(Optimizer& optimizer, const StateDict& from);

/// State that is saved and loaded together, part by part: models, optimizers, and whatever else can
/// give and take a StateDict. Keys are "<part>/<key>". Parts must outlive it.
class WEFT_API TrainingState {
 public:
  /// Functions that give a part's state, and take the numbers back when its tensors are filled.
  struct Part {
    std::function<StateDict()> give;
    std::function<void(const std::map<std::string, int64_t>& numbers)> take;
    /// `take` gets the numbers that a checkpoint has of this part, whatever their names: for a part
    /// whose numbers differ from version to version.
    bool takes_any_numbers = false;
  };

  /// std::invalid_argument when there is a part of that name, or it is empty or has a slash.
  void add(const std::string& name, Part part);
  void add(const std::string& name, Module& module);
  /// Adds only the adapters of a module (`adapter_state_dict`); its other parameters are frozen and
  /// come from elsewhere. A load throws std::invalid_argument when rank or alpha differ.
  void add_adapters(const std::string& name, Module& module);
  /// Its parameters have their names in the modules that are added, whatever the optimizer was
  /// given; "<module's part>.<name>" where two would have one name.
  void add(const std::string& name, Optimizer& optimizer);
  /// Its averages have the names that `ema.parameters()` has.
  void add(const std::string& name, Ema& ema);
  /// Keys "<part>/scale", as bits, and "<part>/growth_tracker".
  void add(const std::string& name, LossScaler& scaler);
  /// Keys "<part>/skipped" and "<part>/in_a_row".
  void add(const std::string& name, NonFinitePolicy& policy);
  /// Key "<part>/value".
  void add(const std::string& name, const Tensor& tensor);
  void add(const std::string& name, int64_t& number);
  /// Keys "<part>/seed" and "<part>/stream".
  void add(const std::string& name, RandomState& random) {
    add(name, [&random]() -> RandomState& { return random; });
  }
  /// The same of the state that `random` returns at each save and load.
  void add(const std::string& name, const std::function<RandomState&()>& random);

  /// All parts; the tensors alias. No traffic.
  StateDict state_dict() const;
  /// The same, but parts that take any numbers have those of `numbers`, and optimizers have the
  /// keys under which `numbers` has them.
  StateDict state_dict_with(const std::map<std::string, int64_t>& numbers) const;
  /// Gives each part its numbers; strict both ways, except for parts that take any.
  void take_numbers(const std::map<std::string, int64_t>& numbers) const;
  /// Each part, with what it holds.
  WEFT_API friend std::ostream& operator<<(std::ostream& out, const TrainingState& state);

 private:
  OptimizerKeys keys_of(Optimizer& optimizer, const std::map<std::string, int64_t>& saved) const;

  std::map<std::string, Part> parts_;
  std::map<std::string, const Module*> modules_;
  std::map<std::string, Optimizer*> optimizers_;
};

}  // namespace weft
