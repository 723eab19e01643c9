// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <weft.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace weft {

/// Expects that a call succeeds.
#define EXPECT_OK(call) EXPECT_EQ(call, WEFT_OK) << weft_last_error()

inline weft_status call_function(void* data) {
  (*static_cast<const std::function<void()>*>(data))();
  return WEFT_OK;
}

/// Runs `body` on so many ranks.
inline void on_ranks(int ranks, std::function<void()> body) {
  EXPECT_OK(weft_run(ranks, call_function, &body));
}

/// The mesh that a text says.
inline weft_mesh mesh_of(const char* axes) {
  weft_mesh mesh = {0};
  EXPECT_OK(weft_mesh_create(axes, &mesh));
  return mesh;
}

using Sizes = std::vector<int64_t>;

inline int64_t count_of(const Sizes& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

/// Numbers between -1 and 1 that differ from element to element.
inline std::vector<double> some_numbers(const Sizes& shape, int64_t salt = 0) {
  std::vector<double> values;
  for (int64_t i = 0; i < count_of(shape); ++i) {
    values.push_back(static_cast<double>((i * 37 + salt * 11) % 101) / 50.5 - 1);
  }
  return values;
}

/// An f64 tensor of those numbers.
inline weft_tensor tensor_of(const std::vector<double>& values, const Sizes& shape,
                             weft_mesh mesh = {0}, const char* placements = nullptr) {
  weft_tensor tensor = {0};
  EXPECT_OK(weft_from_array(values.data(), WEFT_F64, static_cast<int>(shape.size()), shape.data(),
                            mesh, placements, &tensor));
  return tensor;
}

inline Sizes shape_of(weft_tensor tensor) {
  int ndim = 0;
  EXPECT_OK(weft_tensor_ndim(tensor, &ndim));
  Sizes shape(static_cast<size_t>(ndim));
  EXPECT_OK(weft_tensor_shape(tensor, ndim, shape.data()));
  return shape;
}

/// All elements of an f64 tensor.
inline std::vector<double> values_of(weft_tensor tensor) {
  std::vector<double> values(static_cast<size_t>(count_of(shape_of(tensor))));
  EXPECT_OK(weft_to_array(tensor, WEFT_F64, static_cast<int64_t>(values.size()), values.data()));
  return values;
}

inline void expect_close(const std::vector<double>& actual, const std::vector<double>& expected,
                         double bound = 1e-12) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], bound) << "element " << i;
  }
}

/// Expects that a call fails with this status and one sentence that has these words.
inline void expect_failure(weft_status actual, weft_status status, const std::string& words) {
  const std::string text = weft_last_error();
  EXPECT_EQ(actual, status) << words;
  EXPECT_NE(text.find(words), std::string::npos) << "expected: " << words << "\nin: " << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_FALSE(text.ends_with('.')) << text;
}

}  // namespace weft
