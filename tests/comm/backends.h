// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "src/base/numeric.h"
#include "weft/communicator.h"

namespace weft {

/// A kind of communicator for the conformance cases: runs a body on n ranks.
struct Backend {
  const char* name;
  std::function<void(int ranks, const std::function<void(Communicator)>& body)> run;
  /// True when reductions add in a binary tree over the ranks in order.
  bool adds_in_tree = true;
  /// The maximum number of ranks to run on.
  int most_ranks = 8;
};
inline std::ostream& operator<<(std::ostream& out, const Backend& backend) {
  return out << backend.name;
}

/// All kinds, and the numbers of ranks to run each on. Under mpirun there is one kind and one
/// number.
std::vector<Backend> all_backends();
/// The kinds that do not copy memory to another device first.
std::vector<Backend> backends_of_the_host();
std::vector<int> all_sizes();

/// A test case for each backend and number of ranks.
class OnRanks : public testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  int ranks() const { return std::get<1>(GetParam()); }
  bool adds_in_tree() const { return std::get<0>(GetParam()).adds_in_tree; }
  void run(const std::function<void(Communicator)>& body) const {
    std::get<0>(GetParam()).run(ranks(), body);
  }
};

std::vector<std::tuple<Backend, int>> all_cases();
inline auto on_all_ranks() { return testing::ValuesIn(all_cases()); }
inline std::string case_name(const testing::TestParamInfo<OnRanks::ParamType>& tested) {
  return std::string(std::get<0>(tested.param).name) + "_" +
         std::to_string(std::get<1>(tested.param));
}

inline constexpr DType kAllDTypes[] = {f32, bf16, f16, f64, i8,  i16,    i32,
                                       i64, u8,   u16, u32, u64, boolean};

/// A dense vector of any dtype, read and written as doubles.
class Numbers {
 public:
  Numbers(DType dtype, int64_t size, double fill = 0)
      : dtype_(dtype), size_(size), bytes_(static_cast<size_t>(size) * size_of(dtype)) {
    for (int64_t i = 0; i < size; ++i) set(i, fill);
  }
  DType dtype() const { return dtype_; }
  int64_t size() const { return size_; }
  void* data() { return bytes_.data(); }
  void* at(int64_t i) { return bytes_.data() + static_cast<size_t>(i) * size_of(dtype_); }

  double get(int64_t i) const {
    return visit(dtype_, [&](auto type) {
      using T = typename decltype(type)::type;
      return static_cast<double>(reinterpret_cast<const T*>(bytes_.data())[i]);
    });
  }
  void set(int64_t i, double value) {
    visit(dtype_, [&](auto type) {
      using T = typename decltype(type)::type;
      T& element = reinterpret_cast<T*>(bytes_.data())[i];
      if constexpr (is_half<T>) {
        element = T(static_cast<float>(value));
      } else {
        element = static_cast<T>(value);
      }
    });
  }
  bool operator==(const Numbers&) const = default;

 private:
  DType dtype_;
  int64_t size_;
  std::vector<std::byte> bytes_;
};

inline std::ostream& operator<<(std::ostream& out, const Numbers& numbers) {
  out << numbers.dtype() << '[';
  for (int64_t i = 0; i < std::min<int64_t>(numbers.size(), 16); ++i) out << ' ' << numbers.get(i);
  return out << (numbers.size() > 16 ? " ... ]" : " ]");
}

/// The value of rank r at index i: small numbers of both signs (0 and 1 for bool), exact in every
/// dtype.
inline double value_of(DType dtype, int rank, int64_t i) {
  const auto number = static_cast<double>((rank * 7 + i * 3 + i / 11) % 13);
  if (dtype == boolean) return number > 8 ? 1 : 0;
  return is_unsigned(dtype) ? number : number - 6;
}
inline Numbers numbers_of(DType dtype, int rank, int64_t size) {
  Numbers numbers(dtype, size);
  for (int64_t i = 0; i < size; ++i) numbers.set(i, value_of(dtype, rank, i));
  return numbers;
}

/// Elements per rank for n ranks: even, uneven, mostly none, none, and more than a block.
inline std::vector<std::vector<int64_t>> count_patterns(int n) {
  std::vector<std::vector<int64_t>> patterns(5);
  for (int r = 0; r < n; ++r) {
    patterns[0].push_back(4);
    patterns[1].push_back((r * 5 + 3) % 7);
    patterns[2].push_back(r == n / 2 ? 5 : 0);
    patterns[3].push_back(0);
    patterns[4].push_back(2500 + 37 * r);
  }
  return patterns;
}

inline int64_t sum_of_first(const std::vector<int64_t>& counts, int n) {
  int64_t sum = 0;
  for (int r = 0; r < n; ++r) sum += counts[static_cast<size_t>(r)];
  return sum;
}
inline int64_t total_of(const std::vector<int64_t>& counts) {
  return sum_of_first(counts, static_cast<int>(counts.size()));
}
inline int64_t count_of(const std::vector<int64_t>& counts, int rank) {
  return counts[static_cast<size_t>(rank)];
}

}  // namespace weft
