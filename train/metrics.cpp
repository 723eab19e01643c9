// SPDX-License-Identifier: Apache-2.0
#include "train/metrics.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/metrics_destination.h"
#include "weft/extend/run_folder.h"

namespace weft {

namespace fs = std::filesystem;

static MetricsLine number_or_null(const std::optional<double>& number) {
  return number ? MetricsLine(*number) : MetricsLine();
}

MetricsLine metrics_line(const StepReport& report) {
  MetricsLine line{{"step", report.step},
                   {"loss", report.loss},
                   {"val_loss", number_or_null(report.validation_loss)},
                   {"lr", report.learning_rate},
                   {"grad_norm", report.gradient_norm},
                   {"tokens_per_second", report.tokens_per_second},
                   {"mfu", number_or_null(report.utilization)},
                   {"seconds", report.seconds}};
  if (report.experts) {
    line["experts"] = {{"load", report.experts->load},
                       {"imbalance", report.experts->imbalance()},
                       {"dropped", report.experts->dropped},
                       {"balance_loss", number_or_null(report.experts->balance_loss)}};
  }
  line["bytes_moved"] = report.bytes_moved;
  line["peak_bytes"] = report.memory.total.peak;
  for (int i = 0; i < kPurposes; ++i) {
    const auto purpose = static_cast<size_t>(i);
    line["peak_bytes_of"][std::string(name_of(static_cast<Purpose>(i)))] =
        report.memory.by_purpose[purpose].peak;
  }
  const PartSeconds& parts = report.parts;
  line["seconds_of"] = {
      {"data", parts.data},     {"forward_backward", parts.forward_backward},
      {"update", parts.update}, {"validation", parts.validation},
      {"save", parts.save},     {"collectives", number_or_null(parts.collectives)}};
  if (!report.learning_rates.empty()) line["lr_of_groups"] = report.learning_rates;
  if (report.loss_scale) line["loss_scale"] = *report.loss_scale;
  if (!report.skipped.empty()) line["skipped"] = report.skipped;
  return line;
}

/// True when the last line of a file goes: it is of a step after `done`, or a part of a line.
using Goes = bool (*)(std::string_view line, bool is_whole, int64_t done);

static bool json_goes(std::string_view line, bool is_whole, int64_t done) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (json.is_discarded()) return !is_whole && line.starts_with('{');
  const auto step = json.is_object() ? json.find("step") : json.end();
  return step != json.end() && step->is_number_integer() && step->get<int64_t>() > done;
}

static bool csv_goes(std::string_view line, bool is_whole, int64_t done) {
  int64_t step = 0;
  const auto read = std::from_chars(line.data(), line.data() + line.size(), step);
  return !is_whole || (read.ec == std::errc() && step > done);
}

/// Cuts the lines of steps after `done`, which run again, and a last line that was torn.
static void cut(const std::string& flag, const std::string& path, int64_t done, Goes goes) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return;
  const std::string text = read_file(flag, path);
  size_t end = text.size(), lines = 0;
  for (; end > 0; ++lines) {
    const bool is_whole = text[end - 1] == '\n';
    const size_t begin =
        end == 1 ? 0 : text.find_last_of('\n', end - (is_whole ? 2 : 1)) + 1;  // npos + 1 is 0
    if (!goes(std::string_view(text).substr(begin, end - begin), is_whole, done)) break;
    end = begin;
  }
  if (lines > 0) {
    fs::resize_file(path, end, error);
    if (error) fail_call("truncate", flag, ": ", path, ": ", error.message());
    warn(flag, ' ', printable(path), ": removed ", lines, lines == 1 ? " line" : " lines",
         " after step ", done, ", from which the run goes on");
  } else if (!text.empty() && !text.ends_with('\n')) {
    OutputFile(flag, path, OutputFile::Mode::append).write("\n");
  }
}

/// Opens a file of lines, after `done` steps.
static OutputFile opened(const std::string& flag, const std::string& path, int64_t done,
                         Goes goes) {
  done > 0 ? cut(flag, path, done, goes) : set_aside(flag.c_str(), path);
  return {flag, path, done > 0 ? OutputFile::Mode::append : OutputFile::Mode::replace};
}

namespace {

class JsonLines : public MetricsWriter {
 public:
  JsonLines(const std::string& flag, const std::string& path, int64_t done)
      : file_(opened(flag, path, done, json_goes)) {}
  void write(const MetricsLine& line) override { file_.write(line.dump() + '\n'); }

 private:
  OutputFile file_;
};

/// A cell that may hold commas and quotes.
std::string quoted_cell(const std::string& text) {
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? std::string(2, c) : std::string(1, c);
  return cell + '"';
}

/// Columns of a run with experts; cells of what a step does not have are empty.
class Csv : public MetricsWriter {
 public:
  Csv(const std::string& flag, const std::string& path, int64_t done)
      : header_(kept_header(flag, path, done)),
        is_new_(done == 0 || begins_anew(flag, path)),
        file_(opened(flag, path, done, csv_goes)) {
    if (is_new_) file_.write(header_);
  }

  void write(const MetricsLine& line) override {
    MetricsLine values;
    for_each_metric(line, '.', [&](const std::string& name, const MetricsLine& value) {
      values[name] = value;
    });
    std::string row;
    for (size_t begin = 0, end; begin < header_.size(); begin = end + 1) {
      end = header_.find_first_of(",\n", begin);
      const auto found = values.find(header_.substr(begin, end - begin));
      const bool is_text = found != values.end() && found->is_string();
      const std::string text = found == values.end() ? "null"
                               : is_text             ? quoted_cell(found->get<std::string>())
                                                     : found->dump();
      row += (text == "null" ? "" : text) + header_[end];
    }
    file_.write(row);
  }

 private:
  static std::string header() {
    StepReport report;
    report.experts.emplace();
    report.loss_scale = 1;
    report.skipped = "a reason";
    std::string names;
    for_each_metric(metrics_line(report), '.', [&](const std::string& name, const MetricsLine&) {
      names += (names.empty() ? "" : ",") + name;
    });
    return names + '\n';
  }

  /// The header of a file that an older version began, which has fewer columns, stays.
  static std::string kept_header(const std::string& flag, const std::string& path, int64_t done) {
    const std::string all = header();
    std::error_code error;
    if (done == 0 || !fs::is_regular_file(path, error)) return all;
    const File file(flag, path);
    const std::string text = file.text(0, std::min(file.size(), std::ssize(all)));
    const std::string line = text.substr(0, text.find('\n'));
    const bool is_older = line.size() < text.size() && all.starts_with(line + ',');
    return is_older ? line + '\n' : all;
  }

  /// Returns true when the file of a resumed run is missing or ends within its header.
  bool begins_anew(const std::string& flag, const std::string& path) const {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return true;
    const File file(flag, path);
    const std::string text = file.text(0, std::min(file.size(), std::ssize(header_)));
    if (text == header_) return false;
    if (!header_.starts_with(text)) {
      fail(flag, ": ", path, " begins with ", in_quotes(text.substr(0, text.find('\n'))),
           ", expected the columns ", in_quotes(header_.substr(0, header_.size() - 1)),
           "; name another file");
    }
    return true;
  }

  std::string header_;
  bool is_new_;
  OutputFile file_;
};

}  // namespace

MetricsDestination metrics_destination(const std::string& destination) {
  static constexpr std::string_view kPrefix = "tensorboard:";
  std::error_code ignored;
  if (destination.starts_with(kPrefix)) {
    return {MetricsForm::events, destination.substr(kPrefix.size())};
  }
  if (destination.ends_with('/') || fs::is_directory(destination, ignored)) {
    return {MetricsForm::events, destination};
  }
  return {destination.ends_with(".csv") ? MetricsForm::csv : MetricsForm::json_lines, destination};
}

std::unique_ptr<MetricsWriter> metrics_writer(const std::string& flag,
                                              const std::string& destination, int64_t done) {
  const auto [form, path] = metrics_destination(destination);
  if (path.empty()) {
    fail(flag, " is ", in_quotes(destination), ", expected a file or tensorboard:DIR");
  }
  if (form == MetricsForm::events) return event_writer(flag, path, done);
  if (form == MetricsForm::csv) return std::make_unique<Csv>(flag, path, done);
  return std::make_unique<JsonLines>(flag, path, done);
}

}  // namespace weft
