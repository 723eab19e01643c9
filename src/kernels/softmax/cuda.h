// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/softmax/softmax.h"

namespace weft::cuda {

// GPU versions of the functions of src/kernels/softmax.h.

void row_sum_exp(const Block& sum, const Block& x, int dim, const Block& max);
void softmax(const Block& y, const Block& x, int dim, const Block* max, const Block* sum);
void log_softmax(const Block& y, const Block& x, int dim, const Block* max, const Block* sum);
void logsumexp(const Block& out, const Block& x, int dim);
void row_dot(const Block& dot, const Block& a, const Block& b, int dim);
void softmax_backward(const Block& dx, const Block& dy, const Block& y, int dim, const Block* dot);
void log_softmax_backward(const Block& dx, const Block& dy, const Block& y, int dim,
                          const Block* sum);
void logsumexp_backward(const Block& dx, const Block& dy, const Block& x, const Block& lse,
                        int dim);

}  // namespace weft::cuda
