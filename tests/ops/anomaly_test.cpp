// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/anomaly.h"
#include "weft/derivatives.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/extend/testing.h"
#include "weft/ops.h"

namespace weft {

template <class Call> static std::string anomaly_of(const Call& call) {
  return error_of<std::runtime_error>(call);
}

TEST(Anomaly, NamesTheFirstOpWithNanOrInfinity) {
  Tensor x = Tensor::of({-1.0, 0.0, 1.0}).to(f64);
  x.set_requires_grad();
  const Tensor inner = square(x), root = sqrt(inner);
  const DetectAnomaly anomaly;
  const std::vector<std::pair<std::function<void()>, std::string>> planted = {
      {[&] { log(x.detach()); }, "log: result 0 [3] has NaN in forward, on rank 0"},
      {[&] { log(square(x)); }, "log: result 0 [3] has an infinity in forward"},
      {[&] { sqrt(x); }, "sqrt: result 0 [3] has NaN in forward"},
      {[&] { div(1.0, x); }, "number_div: result 0 [3] has an infinity in forward"},
      {[&] { exp(mul(x, 1000.0)); }, "exp: result 0 [3] has an infinity in forward"},
      {[&] { acos(mul(x, 2.0)); }, "acos: result 0 [3] has NaN in forward"},
      {[&] { div(x, x); }, "div: result 0 [3] has NaN in forward"},
      {[&] { pow(x, 0.5); }, "pow_number: result 0 [3] has NaN in forward"},
      {[&] { rsqrt(square(x)); }, "rsqrt: result 0 [3] has an infinity in forward"},
      {[&] { grad({sum(root)}, {x}, {.retain_graph = true}); },
       "div: result 0 [3] has an infinity in the gradient of sqrt"},
      {[&] { add(x, -INFINITY); }, "nothing"},
      {[&] { masked_fill(x, greater(x, 0.0), -INFINITY); }, "nothing"},
      {[&] { grad({sum(pow(x, 2.0))}, {x}, {.create_graph = true}); }, "nothing"}};
  for (const auto& [run, expected] : planted) {
    const std::string found = anomaly_of(run);
    EXPECT_TRUE(found.starts_with(expected)) << found << " instead of " << expected;
  }
  EXPECT_EQ(error_of([] { const DetectAnomaly second; }),
            "detect_anomaly: the rank looks at its op calls already, expected one scope");
}

}  // namespace weft
