// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "ops/engine/tensor_body.h"
#include "weft/extend/call.h"

namespace weft {

struct OpBody;
struct Route;

/// A view that is held as a copy, since its elements had to move: `part` holds elements of `base`,
/// those that a view op selects. A change of one of them reaches the other: a change of `part` is
/// put back at once, and `part` is fetched again when an op takes it after a change of `base`.
/// Ranks agree on both: over a mesh they count only changes that all of them make. A read of one
/// rank's part never communicates: it throws where the elements are outdated.
struct CopiedView final : public RefCounted {
  /// Null for a copy that refuses changes.
  std::shared_ptr<const OpBody> op = {};
  Attributes attributes = {};
  Tensor base = {}, part = {};
  /// The changes of base's memory that `part` shows: those of all ranks if it is over a mesh.
  std::atomic<uint64_t> version = 0;
  /// The recorded ones, and how many of them changes of `part` made.
  uint32_t recorded = 0, own = 0;
  bool is_busy = false;
  /// Copies up to the tensor in memory, which all live as long as this one: no more than kDeepest.
  /// Beyond, `base` is that tensor, and the copy refuses changes and reads after later ones.
  int depth = 1;
  /// Tensors may be read by several threads.
  std::mutex refreshing = {};
  static constexpr int kDeepest = 32;

  /// Makes `view` one, of `base` by `op`.
  static void attach(const Tensor& view, const Tensor& base, std::shared_ptr<const OpBody> op,
                     const Attributes& attributes);
  bool is_current() const;
  void refresh();
  /// Refreshes the copy before a read of this rank's part; throws if that needs other ranks.
  void read();
  /// Puts back what `shown`, a tensor of the memory of `part`, has changed.
  void put_back(const TensorBody& shown, bool is_recorded);
  /// Throws std::invalid_argument "<what>: ..." where a change of `view` cannot be put back.
  void check_changeable(const char* what, const Tensor& view) const;

  static void destroy(CopiedView* view) { delete view; }
};

/// Returns how many of the recorded changes of the memory of `base` were made through `view`, one
/// of its views: 1 for a view that is held in that memory, which does not count them.
uint32_t recorded_through(const Tensor& view, const Tensor& base);

/// Works out, for a route of a view op, whether the whole result is a view of an operand of form
/// `given`, and the result's form.
void find_form(const OpBody& op, const Attributes& attributes, Route& route,
               const Ref<Form>& given);

}  // namespace weft
