// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/stream.h"

namespace weft {

class FlightRecord;

/// Which implicit traffic an op may cause: any, only what moves no bytes, or none at all (an op
/// whose operands are not laid out for it throws).
enum class Traffic : uint8_t { allow, free_only, forbid };

/// Where random numbers continue; equal on all ranks. Two integers are the whole state.
struct RandomState {
  uint64_t seed = 0;
  uint64_t stream = 0;
  bool operator==(const RandomState&) const = default;
};

/// The ambient state of one rank: the only one there is. A thread that nobody gave one has a
/// default.
struct WEFT_API Context {
  bool grad_enabled = true;
  Traffic traffic = Traffic::allow;
  RandomState random;
  Stream stream;
  /// Threads that this rank's kernels may use.
  int threads = 1;
  /// Check, by a collective, what is said to be equal on all ranks (the values given to
  /// distribute).
  bool checks_equality = false;
  /// The same bits in each run on GPUs too: cuDNN's gradient of attention then adds up in one
  /// order, which is slower and takes memory. See `reduce_in_rank_order` for what processes add up.
  bool deterministic = false;
  /// What runs now, by its address: a module in its forward, or in the gradient of it. For reports.
  const void* scope = nullptr;
  /// The rank's last collectives, where something asks for them.
  std::shared_ptr<FlightRecord> flight;
  /// What the floors above keep for the rank (route tables, caches), by floor.
  std::shared_ptr<void> ops;

  static Context& current() {
    Context* context = current_;
    return context ? *context : of_thread();
  }

 private:
  friend class ContextScope;
  static Context& of_thread();
  [[gnu::tls_model("initial-exec")]] static constinit thread_local Context* current_;
};

/// No op in the scope is recorded for backward.
class WEFT_API NoGrad {
 public:
  NoGrad() : before_(Context::current().grad_enabled) { Context::current().grad_enabled = false; }
  ~NoGrad() { Context::current().grad_enabled = before_; }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

/// Says what runs, while it does.
class RunScope {
 public:
  explicit RunScope(const void* scope) : before_(Context::current().scope) {
    Context::current().scope = scope;
  }
  ~RunScope() { Context::current().scope = before_; }
  RunScope(const RunScope&) = delete;
  RunScope& operator=(const RunScope&) = delete;

 private:
  const void* before_;
};

/// Sets the traffic policy for a scope.
class WEFT_API TrafficScope {
 public:
  explicit TrafficScope(Traffic traffic) : before_(Context::current().traffic) {
    Context::current().traffic = traffic;
  }
  ~TrafficScope() { Context::current().traffic = before_; }
  TrafficScope(const TrafficScope&) = delete;
  TrafficScope& operator=(const TrafficScope&) = delete;

 private:
  Traffic before_;
};

/// Random numbers of the calling rank start again from `seed`; call it with one seed on all ranks.
WEFT_API void manual_seed(uint64_t seed);

/// How ranks are run.
struct RunOptions {
  /// Every wait for another rank ends with a CommError after this long.
  std::chrono::milliseconds deadline = std::chrono::minutes(10);
  /// Threads of each rank's kernels; 0 shares the machine's cores evenly, at least one each.
  int threads_per_rank = 0;
  uint64_t seed = 0;
  /// For debugging: see Context::checks_equality.
  bool checks_equality = false;
};

/// Runs `body` on `ranks` threads of this process, each with its own Context, over one `threads`
/// communicator. Returns when all have ended; rethrows the first cause when one threw. A rank that
/// neither ends nor communicates after the others have failed is named on stderr, and the process
/// ends with exit code 1: a thread cannot be stopped.
WEFT_API void run_ranks(int ranks, const std::function<void(Communicator)>& body,
                        const RunOptions& options = {});

/// Ranks of the job that this process is one rank of: started by `weft run`, mpirun, torchrun or
/// srun. 1 for a process that is alone. std::invalid_argument when their variables make no sense.
WEFT_API int launched_ranks();
/// "weft run", "mpirun", "torchrun" or "srun"; empty for a process that is alone.
WEFT_API std::string launched_by();

/// The rank among those of its job on this host, and how many they are: 0 of 1 when it is alone; a
/// size of 0 where the launcher does not say.
struct LocalRank {
  int rank = 0;
  int size = 1;
};
WEFT_API LocalRank launched_local_rank();

/// The communicator of all ranks of the job, this process being one of them; of one rank when it is
/// alone. The calling thread becomes the rank: it gets its threads, seed and deadline from
/// `options`, and the process takes memory for tensors where the other ranks of its host read it.
/// When called again it returns the same; the deadline stays. std::runtime_error naming the ranks
/// that did not come within the deadline, and a rank that is another build. Where ranks are on
/// several hosts and MPI itself does not begin within the deadline, the process ends with a
/// sentence and exit code 1: MPI's start cannot be given up.
WEFT_API Communicator connect(const RunOptions& options = {});

/// Runs `body` on all ranks: on this process's rank of `connect` when it is one of a job, telling
/// the others how it ended, else on `ranks` threads as `run_ranks` does. One program for both.
/// std::invalid_argument when more than one rank is asked for and the job has another number.
WEFT_API void run_world(int ranks, const std::function<void(Communicator)>& body,
                        const RunOptions& options = {});

/// A communicator of `size` ranks of which only `rank` is there: collectives move nothing and cost
/// nothing but count the bytes that would come; own parts are copied. `ranks_per_host` tells
/// planning where the slow links are, `in_memory` whether ranks read each other's memory, as
/// threads do.
WEFT_API Communicator fake_world(int rank, int size, int ranks_per_host = 8, bool in_memory = true);

}  // namespace weft
