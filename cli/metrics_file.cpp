// SPDX-License-Identifier: Apache-2.0
#include "cli/metrics_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "cli/numbers.h"
#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft::cli {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Buckets of a series at most; a chart is about that many pixels wide.
static constexpr size_t kMostBuckets = 1000;
/// Metrics of a run at most; those after them are left out.
static constexpr size_t kMostSeries = 400;
static constexpr int64_t kBlock = int64_t{1} << 20, kLongestLine = int64_t{16} << 20;

void Series::add(int64_t step, double value) {
  if (count_ == 0 || value < least_) step_of_least_ = step;
  least_ = count_ == 0 ? value : std::min(least_, value);
  most_ = count_ == 0 ? value : std::max(most_, value);
  if (count_ == 0 || step >= last_step_) last_ = value;
  last_step_ = count_ == 0 ? step : std::max(last_step_, step);
  sum_ += value;
  ++count_;
  const auto [place, is_new] = buckets_.try_emplace(step / width_);
  Bucket& bucket = place->second;
  bucket.least = is_new ? value : std::min(bucket.least, value);
  bucket.most = is_new ? value : std::max(bucket.most, value);
  bucket.steps += static_cast<double>(step);
  bucket.sum += value;
  ++bucket.count;
  if (buckets_.size() > kMostBuckets) halve();
}

void Series::halve() {
  std::map<int64_t, Bucket> wider;
  for (const auto& [key, bucket] : buckets_) {
    const auto [place, is_new] = wider.try_emplace(key / 2, bucket);
    if (is_new) continue;
    Bucket& into = place->second;
    into = {into.steps + bucket.steps, into.sum + bucket.sum, std::min(into.least, bucket.least),
            std::max(into.most, bucket.most), into.count + bucket.count};
  }
  buckets_ = std::move(wider);
  width_ *= 2;
}

namespace {

/// Takes the lines of a file, one after the other.
class MetricsReader {
 public:
  explicit MetricsReader(RunMetrics& run) : run_(run) {}

  void read(const File& file) {
    std::string text;
    for (int64_t at = 0; at < file.size(); at += kBlock) {
      text += file.text(at, std::min(kBlock, file.size() - at));
      size_t begin = 0;
      for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
        line(std::string_view(text).substr(begin, end - begin), true);
      }
      text.erase(0, begin);
      if (std::ssize(text) > kLongestLine) {
        fail("report: ", file.path(), ": line ", number_ + 1, " has over ", kLongestLine,
             " bytes, expected lines of --metrics");
      }
    }
    if (!text.empty()) line(text, false);
    note("lines are not metrics and were left out", "line is not metrics and was left out", bad_,
         first_bad_);
    note("lines repeat a step or go back, and share its place",
         "line repeats a step or goes back, and shares its place", back_, first_back_);
    if (skipped_ > 0) {
      run_.notes.push_back(concat(skipped_, skipped_ == 1 ? " step was" : " steps were",
                                  " skipped; the last was step ", last_skipped_, ": ", reason_));
    }
    if (torn_) run_.notes.push_back("the last line is torn and was left out");
    if (dropped_)
      run_.notes.push_back(concat("metrics after the first ", kMostSeries, " were left out"));
  }

 private:
  void note(const char* many, const char* one, int64_t count, int64_t first) {
    if (count > 0)
      run_.notes.push_back(concat(count, ' ', count == 1 ? one : many, " (",
                                  count == 1 ? "" : "the first: ", "line ", first, ')'));
  }

  void line(std::string_view text, bool is_whole) {
    ++number_;
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.find_first_not_of(" \t") == text.npos) return;
    if (columns_.empty() && !is_json_) {
      is_json_ = text.starts_with('{');
      if (!is_json_) columns_ = cells(text);
      if (!is_json_) return;
    }
    const bool is_good = is_json_ ? json_line(text) : csv_line(text);
    if (is_good) return;
    if (!is_whole) torn_ = true;
    if (is_whole && bad_++ == 0) first_bad_ = number_;
  }

  bool json_line(std::string_view text) {
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) return false;
    const auto step = json.find("step");
    if (step == json.end() || !step->is_number() || !begin_step(step->get<double>())) return false;
    flatten(json, "");
    return true;
  }

  void flatten(const Json& object, const std::string& prefix) {
    for (const auto& [key, value] : object.items()) {
      const std::string name = prefix + key;
      if (value.is_number() || value.is_boolean())
        add(name, value.is_boolean() ? value.get<bool>() : value.get<double>());
      if (name == "skipped" && value.is_string()) note_skipped(value.get<std::string>());
      if (value.is_object() && std::ranges::count(prefix, '.') < 3) flatten(value, name + '.');
      if (name == "experts.load" && is_load(value)) value.get_to(run_.load);
    }
  }

  static bool is_load(const Json& value) {
    const auto is_row = [](const Json& row) {
      return row.is_array() && !row.empty() &&
             std::ranges::all_of(row, [](const Json& rows) { return rows.is_number(); });
    };
    return value.is_array() && !value.empty() && std::ranges::all_of(value, is_row);
  }

  /// The cells of a line of CSV; those in quotes may hold commas and, twice, quotes.
  static std::vector<std::string> cells(std::string_view text) {
    std::vector<std::string> all(1);
    bool is_quoted = false;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '"' && is_quoted && text.substr(i + 1).starts_with('"')) {
        all.back() += text[++i];
      } else if (text[i] == '"') {
        is_quoted = !is_quoted;
      } else if (text[i] == ',' && !is_quoted) {
        all.emplace_back();
      } else {
        all.back() += text[i];
      }
    }
    return all;
  }

  bool csv_line(std::string_view text) {
    const std::vector<std::string> values = cells(text);
    const auto step = std::ranges::find(columns_, "step") - columns_.begin();
    if (values.size() != columns_.size() || step == std::ssize(columns_)) return false;
    const auto number = number_in<double>(values[static_cast<size_t>(step)]);
    if (!number || !begin_step(*number)) return false;
    for (size_t i = 0; i < values.size(); ++i) {
      if (const auto value = number_in<double>(values[i])) add(columns_[i], *value);
      if (columns_[i] == "skipped" && !values[i].empty()) note_skipped(values[i]);
    }
    return true;
  }

  void note_skipped(const std::string& reason) {
    ++skipped_;
    last_skipped_ = step_;
    reason_ = reason;
  }

  bool begin_step(double step) {
    if (!(step >= 0 && step < 0x1p53 && step == std::floor(step))) return false;
    step_ = static_cast<int64_t>(step);
    if (run_.lines > 0 && step_ <= run_.last_step && back_++ == 0) first_back_ = number_;
    run_.first_step = run_.lines == 0 ? step_ : std::min(run_.first_step, step_);
    run_.last_step = std::max(run_.last_step, step_);
    ++run_.lines;
    return true;
  }

  void add(const std::string& name, double value) {
    if (name == "step" || !std::isfinite(value)) return;
    if (name == "seconds") value = seconds_so_far(value);
    const auto [place, is_new] = places_.try_emplace(name, run_.series.size());
    if (is_new && run_.series.size() == kMostSeries) {
      places_.erase(place);
      dropped_ = true;
      return;
    }
    if (is_new) run_.series.emplace_back(name, Series());
    run_.series[place->second].second.add(step_, value);
  }

  /// A resumed run counts from 0 again.
  double seconds_so_far(double seconds) {
    if (seconds < seconds_) before_ += seconds_;
    seconds_ = seconds;
    return before_ + seconds;
  }

  RunMetrics& run_;
  std::unordered_map<std::string, size_t> places_;
  std::vector<std::string> columns_;
  bool is_json_ = false, torn_ = false, dropped_ = false;
  int64_t number_ = 0, step_ = 0, bad_ = 0, first_bad_ = 0, back_ = 0, first_back_ = 0;
  int64_t skipped_ = 0, last_skipped_ = 0;
  std::string reason_;
  double seconds_ = 0, before_ = 0;
};

}  // namespace

/// The metrics file of a run's directory.
static std::string metrics_of_directory(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code error;
  for (const char* usual : {"metrics.jsonl", "metrics.csv"}) {
    const fs::path path = fs::path(directory) / usual;
    if (fs::is_regular_file(path, error)) return path.string();
  }
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string end = entry.path().extension().string();
    if ((end == ".jsonl" || end == ".csv") && entry.is_regular_file(error)) {
      found.push_back(entry.path().string());
    }
  }
  if (error) fail("report: ", directory, ": ", error.message());
  if (found.empty()) {
    fail("report: ", directory, " holds no metrics, expected metrics.jsonl or a file like it; ",
         "weft train --metrics ", (fs::path(directory) / "metrics.jsonl").string(), " writes one");
  }
  if (found.size() > 1) {
    std::ranges::sort(found);
    fail("report: ", directory, " holds ", found.size(), " files of metrics, expected one; name ",
         found[0], " or another");
  }
  return found[0];
}

RunMetrics read_metrics(const std::string& path) {
  std::error_code ignored;
  const bool is_directory = fs::is_directory(path, ignored);
  const std::string file = is_directory ? metrics_of_directory(path) : path;
  // The name of the folder stands for "runs/a/" and for ".".
  const fs::path place = fs::absolute(file, ignored).lexically_normal();
  const bool is_of_folder = is_directory || place.stem() == "metrics";
  RunMetrics run{(is_of_folder ? place.parent_path().filename() : place.stem()).string(), file};
  MetricsReader(run).read(File("report", file));
  if (run.lines == 0)
    fail("report: ", file, " holds no line with a step, expected a file that --metrics wrote");
  return run;
}

}  // namespace weft::cli
