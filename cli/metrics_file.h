// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace weft::cli {

/// A metric over the steps of a run in bounded memory: steps share a bucket once there are many.
class Series {
 public:
  /// The steps of a bucket are [i * width, (i + 1) * width) for its key i.
  struct Bucket {
    double steps = 0, sum = 0, least = 0, most = 0;
    int64_t count = 0;
  };

  void add(int64_t step, double value);

  const std::map<int64_t, Bucket>& buckets() const { return buckets_; }
  int64_t width() const { return width_; }
  /// Covers all steps.
  int64_t count() const { return count_; }
  double mean() const { return sum_ / static_cast<double>(count_); }
  double last() const { return last_; }
  double least() const { return least_; }
  int64_t step_of_least() const { return step_of_least_; }
  double most() const { return most_; }

 private:
  void halve();

  std::map<int64_t, Bucket> buckets_;
  int64_t width_ = 1, count_ = 0, last_step_ = 0, step_of_least_ = 0;
  double sum_ = 0, last_ = 0, least_ = 0, most_ = 0;
};

/// The metrics of a run, as `--metrics` of `weft train` writes them in JSON lines or CSV.
struct RunMetrics {
  /// Shown to people: the name of the file, or of its folder.
  std::string name;
  std::string path;
  /// Lines with a step.
  int64_t lines = 0;
  int64_t first_step = 0, last_step = 0;
  /// Named series, in the order of their first appearance; members of objects are "outer.inner".
  std::vector<std::pair<std::string, Series>> series = {};
  /// Rows of each expert by sparse layer, in the last step that has them.
  std::vector<std::vector<double>> load = {};
  /// Sentences about lines that were left out.
  std::vector<std::string> notes = {};
};

/// Reads the metrics of a run: `path` is a file, or a directory with "metrics.jsonl",
/// "metrics.csv" or one other file that ends so. std::invalid_argument when it does not exist or
/// holds no step; lines that are torn or are not metrics are left out and noted.
RunMetrics read_metrics(const std::string& path);

}  // namespace weft::cli
