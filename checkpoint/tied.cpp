// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tied.h"

#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/logic.h"
#include "weft/ops/reductions.h"

namespace weft {

static bool have_equal_elements(const Tensor& a, const Tensor& b) {
  if (a.storage() == b.storage() && a.block().data == b.block().data) return true;
  const NoGrad no_grad;
  const bool alike = a.is_sharded() == b.is_sharded();
  const Tensor left = alike || !a.is_sharded() ? a : a.full_tensor();
  const Tensor right = alike || !b.is_sharded() ? b : b.full_tensor();
  const Tensor no_numbers = logical_and(not_equal(left, left), not_equal(right, right));
  const Tensor same = all(logical_or(equal(left, right), no_numbers));
  return same.full_tensor().to_vector<double>()[0] != 0;
}

void check_tied(const std::string& what, const std::string& name, const Tensor& tensor,
                const std::string& other_name, const Tensor& other) {
  if (have_equal_elements(tensor, other)) return;
  fail(what, ": tensors ", in_quotes(name), " and ", in_quotes(other_name),
       " differ, expected equal ones; they are one tied parameter of the model");
}

}  // namespace weft
