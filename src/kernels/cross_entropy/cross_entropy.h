// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

// Logits are [..., classes], `ids` (i32 or i64) is [...]. Column j of the logits is class offset +
// j, so a rank may hold a slice of the classes. Rows are computed in f32, f64 for f64.

/// picked[r] = logits[r, ids[r] - offset], 0 where that class is not in the slice.
void pick(const MemoryBlock& picked, const MemoryBlock& logits, const MemoryBlock& ids,
          int64_t offset);

/// dlogits[r, j] = dloss[r] * (exp(logits[r, j] - lse[r]) - (ids[r] == offset + j)), 0 where ids[r]
/// is `ignored`: the gradient of lse[r] - logits[r, ids[r]], where lse is the logsumexp of whole
/// rows. dlogits may be logits.
void cross_entropy_backward(const MemoryBlock& dlogits, const MemoryBlock& dloss,
                            const MemoryBlock& logits, const MemoryBlock& ids,
                            const MemoryBlock& lse, int64_t offset = 0, int64_t ignored = -100);

// Cross-entropy of z = softcap * tanh((multiplier * x weight^T + bias) / softcap) without storing
// z: its tiles are computed one after the other, in f32 (f64 for f64). The loss of a row with
// target t of C classes is
//   (1 - smoothing) w[t] (lse - z[t]) + smoothing / C * sum over c of w[c] (lse - z[c])
//     + z_loss * lse^2
// and 0 where the target is `ignored`.

struct HeadNumbers {
  double multiplier = 1, softcap = 0, smoothing = 0, z_loss = 0;
  int64_t ignored = -100;
};

/// x [n, d], weight [v, d] and bias [v] hold classes first .. first + v - 1 of `classes`;
/// class_weights has all of them. The last two may have no data. Dense.
struct LinearHead {
  MemoryBlock x, weight, targets, bias, class_weights;
  int64_t first, classes;
  HeadNumbers numbers;
};

/// Statistics of the rows over this head's classes: lse, z[t] (0 where the target is another class)
/// and, with smoothing, the sum of w[c] z[c]. Each is [n].
struct HeadStatistics {
  MemoryBlock lse, picked, weighted;
};

void linear_head_statistics(const LinearHead& head, const HeadStatistics& rows);

/// loss [n] of statistics over all classes.
void linear_head_loss(const MemoryBlock& loss, const LinearHead& head, const HeadStatistics& rows);

/// Gradients of x, weight and bias (unless its data is null). Adds to what dweight holds if
/// `accumulate`. Statistics are over all classes.
void linear_head_backward(const LinearHead& head, const MemoryBlock& lse, const MemoryBlock& picked,
                          const MemoryBlock& dloss, const MemoryBlock& dx,
                          const MemoryBlock& dweight, const MemoryBlock& dbias, bool accumulate);

}  // namespace weft
