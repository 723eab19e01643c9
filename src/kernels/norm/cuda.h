// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/norm/norm.h"

namespace weft::cuda {

// GPU versions of the functions of src/kernels/norm.h. Sums over rows are split depending on the
// shape alone, so bits are equal in every run.

void rms_norm(const Block& y, const Block& x, const Block& weight, double eps, const CutRows* cut);
void rms_norm_dot(const Block& dot, const Block& dy, const Block& x, const Block& weight);
void rms_norm_backward(const Block* dx, const Block* dweight, const Block& dy, const Block& x,
                       const Block& weight, double eps, const CutRows* cut, bool accumulate);

void centered_squares(const Block& out, const Block& x, const CutRows& cut);
void layer_norm(const Block& y, const Block& x, const Block& weight, const Block& bias, double eps,
                const CutRows* cut);
void layer_norm_sums(const Block& sum, const Block& dot, const Block& dy, const Block& x,
                     const Block& weight, double eps, const CutRows& cut);
void layer_norm_backward(const Block* dx, const Block* dweight, const Block* dbias, const Block& dy,
                         const Block& x, const Block& weight, double eps, const CutRows* cut,
                         bool accumulate);

}  // namespace weft::cuda
