// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/losses.h"

#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/reductions.h"

namespace weft {

static Tensor reduced(const char* what, const Tensor& losses, std::string_view reduction) {
  if (reduction == "none") return losses;
  if (reduction == "mean") return mean(losses);
  if (reduction == "sum") return sum(losses);
  fail(what, ": reduction is ", in_quotes(reduction), ", expected mean, sum or none");
}

Tensor mse_loss(const Tensor& input, const Tensor& target, std::string_view reduction) {
  check_tensor("mse_loss", input, target);
  if (!(input.shape() == target.shape())) {
    fail("mse_loss: target is ", target.shape(), ", expected ", input.shape(),
         ", the shape of input");
  }
  return reduced("mse_loss", square(sub(input, target)), reduction);
}

}  // namespace weft
