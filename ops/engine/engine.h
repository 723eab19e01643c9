// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <new>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "ops/engine/route.h"
#include "ops/engine/tensor_body.h"
#include "weft/autograd.h"
#include "weft/export.h"
#include "weft/extend/op_log.h"

namespace weft {

class TraceRecorder;
struct CallBody;
class CallWatch;

/// The engine's state on one rank, to which the engine reports what it does. It counts each event
/// and passes it to the rank's OpLog and trace, if they exist; without them an event costs a
/// branch.
struct Engine {
  struct Moved {
    int64_t count = 0;
    int64_t bytes = 0;
  };

  EngineStatistics statistics;
  /// Implicit traffic by the op that caused it.
  std::map<std::string, Moved> implicit;
  OpLog* log = nullptr;
  TraceRecorder* trace = nullptr;
  KeptResults* kept = nullptr;
  CallWatch* watch = nullptr;
  /// Functions that bind memory of blocks that backward reads and finds unbound.
  std::unordered_map<const Storage*, std::function<void()>> gatherers;
  void gather(const Storage& storage) const;
  /// Routes of calls without a mesh.
  RouteTable local_routes{kRouteCapacity};

  /// The calling rank's.
  static Engine& current();

  /// An op, or the gradient of a leaf, requires redistributions in which this rank receives
  /// `bytes`.
  void required(const std::string& what, int64_t bytes);
  /// A plan runs.
  void planned(const std::string& what, const Plan& plan);
  /// An op fetches elements of an operand of layout `from`; `required` has counted the bytes.
  void fetched(const std::string& what, const Layout& from, int64_t bytes);
  /// The same for bytes that `required` could not know.
  void exchanged(const std::string& what, const Layout& from, int64_t bytes);
  /// A call on device `meta`, which is not executed.
  void skipped(const OpBody& op, const Route& route, const CallBody& call);
  /// A contribution to a gradient reached the memory of its sink: written there by its op, or
  /// copied.
  void reached_sink(const Tensor& contribution, bool in_place);
};

/// Runs a plan on `tensor`, unrecorded; shares memory if the plan only slices or relabels. `what`
/// names the op that requires it.
Tensor run_plan(const Tensor& tensor, const Ref<Plan>& plan,
                const std::string& what = "redistribute");

/// Throws when the context's traffic policy forbids the movement. `what` names the op.
void check_policy(const std::string& what, bool moves, bool communicates);

/// Returns `tensor` redistributed to that layout, unrecorded.
Tensor moved_to(const Tensor& tensor, const Ref<Layout>& layout);

/// Returns the owner of the tables of the operands' mesh; null without a mesh.
RankThread* thread_of(std::span<const Tensor> operands);

struct Results {
  std::array<Tensor, kMaxResults> tensors;
  int count = 0;
  std::span<const Tensor> all() const { return {tensors.data(), static_cast<size_t>(count)}; }
};

/// Runs one op call: finds or makes the route, moves operands, runs the kernel, records the call.
Results dispatch(const std::shared_ptr<const OpBody>& op, std::span<const Tensor> operands,
                 const Attributes& attributes);

/// Returns the mesh of the operands over one, if all others hold values that are equal on all ranks
/// and none of these is changed; and the operands, of which those are replicated over it.
DeviceMesh mesh_to_join(const OpBody& op, std::span<const Tensor> operands);
Tensors joined(const OpBody& op, std::span<const Tensor> operands);

/// The destination of a result; none if `tensor` is empty.
struct Place {
  Tensor tensor = {};
  /// Adds to the existing values.
  bool accumulate = false;
  /// Set by the call: the kernel wrote there directly, not to scratch memory that was copied.
  bool direct = false;
};

/// The same without recording. Results with a place are written there; returns the others.
Results dispatch_into(const std::shared_ptr<const OpBody>& op, std::span<const Tensor> operands,
                      const Attributes& attributes, std::span<Place> places);

/// Writes or adds `value` to `destination`, after redistributing it to that layout.
void add_into(const Tensor& destination, bool accumulate, const Tensor& value);

/// Up to N objects stored in place; constructs and destroys only those in use.
template <class T, int N> class InlineList : NotCopied {
 public:
  // Not defaulted: `InlineList()` would zero all its memory.
  InlineList() {}
  ~InlineList() { clear(); }

  T& add(T value) { return *new (at(size_++)) T(std::move(value)); }
  /// Adds the object that make() returns, constructed in place.
  template <class Make> T& add_made(const Make& make) { return *new (at(size_++)) T(make()); }
  void clear() {
    for (int i = 0; i < size_; ++i) (*this)[i].~T();
    size_ = 0;
  }

  T& operator[](int i) { return *std::launder(reinterpret_cast<T*>(at(i))); }
  const T& operator[](int i) const {
    return *std::launder(reinterpret_cast<const T*>(memory_ + sizeof(T) * i));
  }
  int size() const { return size_; }
  std::span<const T> all() const {
    return {reinterpret_cast<const T*>(memory_), static_cast<size_t>(size_)};
  }

 private:
  std::byte* at(int i) { return memory_ + sizeof(T) * i; }

  alignas(T) std::byte memory_[sizeof(T) * N];
  int size_ = 0;
};

/// Operands as an op uses them: redistributed, or as given.
using UsedOperands = InlineList<const Tensor*, kMaxOperands>;

/// Returns the device of an op's operands, which must be one; cpu without operands.
Device device_of(const OpBody& op, std::span<const Tensor> operands);

/// The data behind a Call.
struct CallBody {
  // An aggregate would be zeroed, 4 KiB per call.
  CallBody(const Route& way, const Attributes& given) : route(way), attributes(given) {}

  const Route& route;
  const Attributes& attributes;
  InlineList<MemoryBlock, kMaxOperands> ins;
  InlineList<MemoryBlock, kMaxResults> outs;
  InlineList<MemoryBlock, kMaxResults> stages;
  std::array<bool, kMaxResults> accumulate = {};
};

/// Runs an op's `across`, on copies in host memory for blocks on a GPU.
void run_across(const OpBody& op, const Route& route, const CallBody& call);

/// An op call on the tape.
struct OpNode final : public Node, public Pooled<OpNode> {
  OpNode(std::shared_ptr<const OpBody> called, Ref<Route> way, const Attributes& given)
      : Node(next_sequence()), op(std::move(called)), route(std::move(way)), attributes(given) {}
  void run(BackwardRun& backward, std::span<const Tensor> gradients) override;
  std::string name() const override { return op->spec.name; }
  void release() override;
  bool release_own(Tensors& shared) override;
  std::span<const Edge> edges() const override { return from.all(); }
  std::span<const Ref<Layout>> results() const override { return route->results; }

  /// A tensor that backward reads, and its storage's version when it was saved.
  struct Saved {
    Tensor tensor;
    uint64_t version = 0;
  };
  /// Returns a saved tensor; throws when it was changed in place since.
  Tensor saved(std::span<const Saved> list, int i, const char* kind) const;

  std::shared_ptr<const OpBody> op;
  Ref<Route> route;
  Attributes attributes;
  InlineList<Edge, kMaxOperands> from;
  /// By index; empty where nothing is saved.
  InlineList<Saved, kMaxOperands> in;
  InlineList<Saved, kMaxResults> out;
  bool released = false;
};

/// Records a call on the tape when one of its operands requires a gradient.
void record_op(const std::shared_ptr<const OpBody>& op, Ref<Route> route,
               const Attributes& attributes, std::span<const Tensor> operands,
               const UsedOperands& used, Results& results);

}  // namespace weft
