// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

// Logits are [..., classes], `ids` (i32 or i64) is [...]. Column j of the logits is class offset +
// j, so a rank may hold a slice of the classes. Rows are computed in f32, f64 for f64.

/// picked[r] = logits[r, ids[r] - offset], 0 where that class is not in the slice.
void pick(const MemoryBlock& picked, const MemoryBlock& logits, const MemoryBlock& ids,
          int64_t offset);

/// loss[r] = logsumexp(logits[r]) - logits[r, ids[r]], 0 where ids[r] is `ignored`. `logits` must
/// hold all classes.
void cross_entropy(const MemoryBlock& loss, const MemoryBlock& logits, const MemoryBlock& ids,
                   int64_t ignored = -100);

/// The same from statistics of whole rows, reduced over ranks: max, row_sum_exp, pick.
void cross_entropy(const MemoryBlock& loss, const MemoryBlock& ids, const MemoryBlock& max,
                   const MemoryBlock& sum, const MemoryBlock& picked, int64_t ignored = -100);

/// dlogits[r, j] = dloss[r] * (softmax(logits[r])[j] - (ids[r] == offset + j)), 0 where ids[r] is
/// `ignored`. `max` and `sum` are statistics of whole rows, required when `logits` holds a slice of
/// the classes; `max` alone is the rows' logsumexp. dlogits may be logits.
void cross_entropy_backward(const MemoryBlock& dlogits, const MemoryBlock& dloss,
                            const MemoryBlock& logits, const MemoryBlock& ids, int64_t offset = 0,
                            int64_t ignored = -100, const MemoryBlock* max = nullptr,
                            const MemoryBlock* sum = nullptr);

/// out = the number of ids that are not `ignored`, one element.
void count_kept(const MemoryBlock& out, const MemoryBlock& ids, int64_t ignored = -100);

}  // namespace weft
