// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/norm.h"

namespace weft::cuda {

// Functions of src/kernels/norm.h where the blocks lie on a GPU. Sums over rows are cut as the
// shape says, so that bits do not depend on the run.

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
