// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "weft/export.h"
#include "weft/stream.h"

namespace weft {

class FlightRecord;
struct Engine;

/// The implicit traffic that an op may cause: any, only what moves no bytes, or none at all (an op
/// whose operands are not laid out for it throws).
enum class Traffic : uint8_t { allow, free_only, forbid };

/// The state of the random numbers: two integers, equal on all ranks.
struct RandomState {
  uint64_t seed = 0;
  uint64_t stream = 0;
  bool operator==(const RandomState&) const = default;
};

/// The settings of one rank. A thread without them uses defaults.
struct WEFT_API Context {
  bool grad_enabled = true;
  Traffic traffic = Traffic::allow;
  RandomState random;
  Stream stream;
  /// Threads that this rank's kernels may use.
  int threads = 1;
  /// Check what is said to be equal on all ranks (the values given to distribute): true, all of it,
  /// by a collective each time; false, nothing; unset, a hash of up to 1 MiB of the values in the
  /// first 16 calls for each layout and in each 16th later one, compared with the next collective.
  std::optional<bool> checks_equality = {};
  /// The address of the module whose forward, or the gradient of it, runs now. Used in reports.
  const void* scope = nullptr;
  /// The rank's last collectives, where something asks for them.
  std::shared_ptr<FlightRecord> flight;
  /// The state of the ops' engine on the rank.
  std::shared_ptr<Engine> engine;

  static Context& current() {
    Context* context = current_;
    return context ? *context : of_thread();
  }

 private:
  friend class ContextScope;
  static Context& of_thread();
  WEFT_STATIC_TLS static constinit thread_local Context* current_;
};

/// Sets a member of the rank's Context for a scope.
template <auto kMember> class ContextSetting : NotCopied {
 public:
  using Value = std::remove_reference_t<decltype(std::declval<Context&>().*kMember)>;
  explicit ContextSetting(Value value)
      : before_(std::exchange(Context::current().*kMember, value)) {}
  ~ContextSetting() { Context::current().*kMember = before_; }

 private:
  Value before_;
};

/// Sets the traffic policy.
using TrafficScope = ContextSetting<&Context::traffic>;
/// Says what runs, while it does.
using RunScope = ContextSetting<&Context::scope>;
/// No op in the scope is recorded for backward.
struct NoGrad : ContextSetting<&Context::grad_enabled> {
  NoGrad() : ContextSetting(false) {}
};

/// Sets whether GPUs compute the same bits in each run, for this process: cuDNN adds up the
/// gradient of attention in one order, which takes memory, and ranks that are processes reduce GPU
/// memory by messages instead of NCCL's reductions, in a tree over the ranks, with sums of bf16 and
/// f16 in f32, so that the bits equal those of ranks that are threads. Both are slower. Off unless
/// the environment sets WEFT_DETERMINISTIC=1. Must be equal on all ranks of a job.
WEFT_API void use_deterministic_algorithms(bool on);
WEFT_API bool uses_deterministic_algorithms();

/// Random numbers of the calling rank start again from `seed`; call it with one seed on all ranks.
WEFT_API void manual_seed(uint64_t seed);

}  // namespace weft
