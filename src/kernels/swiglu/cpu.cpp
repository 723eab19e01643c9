// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/swiglu/swiglu.h"

#include "src/kernels/map/map.h"
#include "src/kernels/math/math.h"

namespace weft {
namespace {

struct SwigluOf {
  template <class T>
  WEFT_FN T operator()(T a, T b) const {
    return a * sigmoid(a) * b;
  }
};

struct SwigluGradient {
  template <class T>
  WEFT_FN Pair<T> operator()(T dy, T a, T b) const {
    const T s = sigmoid(a);
    return {dy * b * (s + a * s * (T(1) - s)), dy * (a * s)};
  }
};

}  // namespace

void swiglu(const Block& y, const Block& a, const Block& b) { map_floating(SwigluOf{}, y, a, b); }

void swiglu_backward(const Block& da, const Block& db, const Block& dy, const Block& a,
                     const Block& b) {
  map_pair(SwigluGradient{}, da, db, dy, a, b);
}

}  // namespace weft
