// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/metrics_file.h"
#include "cli/numbers.h"
#include "weft/extend/file.h"
#include "weft/extend/run_folder.h"

namespace weft::cli {

using Json = nlohmann::ordered_json;

/// The first line of the page, and the place of its data.
static constexpr std::string_view kFirstLine = "<!DOCTYPE html><!-- written by weft report -->";
static constexpr std::string_view kPlace = "{\"runs\":[]}";

namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out = "report.html";
};

}  // namespace

/// A number with 7 digits: a pixel is far wider than the rest.
static double rounded(double value) {
  return std::strtod(formatted("%.7g", value).c_str(), nullptr);
}

/// The statistics of a series, and its curve unless the page shows only its mean or its last value.
static Json series_json(const std::string& name, const Series& series) {
  Json json{{"count", series.count()},           {"last", rounded(series.last())},
            {"mean", rounded(series.mean())},    {"min", rounded(series.least())},
            {"minStep", series.step_of_least()}, {"max", rounded(series.most())}};
  if (name.starts_with("peak_bytes_of.") || name.starts_with("seconds_of.")) return json;
  Json steps = Json::array(), means = Json::array(), least = Json::array(), most = Json::array();
  for (const auto& [key, bucket] : series.buckets()) {
    const auto count = static_cast<double>(bucket.count);
    steps.push_back(rounded(bucket.steps / count));
    means.push_back(rounded(bucket.sum / count));
    least.push_back(rounded(bucket.least));
    most.push_back(rounded(bucket.most));
  }
  json.update({{"width", series.width()}, {"x", steps}, {"y", means}});
  if (series.width() > 1) json.update({{"lo", least}, {"hi", most}});
  return json;
}

static Json run_json(const RunMetrics& run) {
  Json json{{"name", run.name},        {"path", run.path},        {"lines", run.lines},
            {"first", run.first_step}, {"last", run.last_step},   {"notes", run.notes},
            {"load", run.load},        {"series", Json::object()}};
  for (const auto& [name, series] : run.series) json["series"][name] = series_json(name, series);
  return json;
}

/// The page with the data of the runs. A text within a script element ends at "<": it has none.
static std::string page_of(const std::vector<RunMetrics>& runs) {
  Json json{{"runs", Json::array()}};
  for (const RunMetrics& run : runs) json["runs"].push_back(run_json(run));
  std::string data;
  for (const char byte : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    byte == '<' ? data += "\\u003c" : data += byte;
  }
  std::string page = report_page;
  return page.replace(page.find(kPlace), kPlace.size(), data);
}

/// Runs whose files have equal names are called by their paths.
static void make_names_differ(std::vector<RunMetrics>& runs) {
  std::map<std::string, int> uses;
  for (const RunMetrics& run : runs) ++uses[run.name];
  for (RunMetrics& run : runs) {
    if (uses[run.name] > 1) run.name = run.path;
  }
}

/// An earlier report is replaced; any other file is renamed.
static void make_room(const std::string& out) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(out, ignored)) {
    const File old("--out", out);
    if (old.text(0, std::min(old.size(), std::ssize(kFirstLine))) == kFirstLine) return;
  }
  set_aside("--out", out);
}

static void write_report(const ReportOptions& o) {
  std::vector<RunMetrics> runs;
  for (const std::string& path : o.runs) {
    runs.push_back(read_metrics(path));
    const RunMetrics& run = runs.back();
    if (located(run.path) == located(o.out)) {
      fail("--out ", o.out, " is also one of the runs, expected another file");
    }
    for (const RunMetrics& other : runs) {
      if (&other == &run || located(other.path) != located(run.path)) continue;
      fail("report: ", run.path, " is given twice, expected each run once");
    }
    for (const std::string& note : run.notes) warn("report: ", printable(run.path), ": ", note);
  }
  make_names_differ(runs);
  make_room(o.out);
  OutputFile file("--out", o.out, OutputFile::Mode::replace);
  file.write(page_of(runs));
  file.close();
  print(runs.size(), runs.size() == 1 ? " run: " : " runs: ", printable(o.out), '\n');
}

void add_report(CLI::App& program) {
  const auto options = std::make_shared<ReportOptions>();
  ReportOptions& o = *options;
  CLI::App* report = program.add_subcommand("report", "Write a page with charts of training runs");
  report->footer(
      "The page is one file, which opens without a network. It compares runs: loss, validation,\n"
      "learning rate, norms, speed, memory, time by part of a step, load of experts.\n"
      "Example: weft report runs/a runs/b.jsonl -o report.html");
  add_named(*report, "runs", o.runs, "RUN",
            "Folders of weft train --save, or files of --metrics (JSON lines or CSV)")
      ->required();
  takes_text(
      add_named(*report, "-o,--out", o.out, "FILE", "The page to write")->capture_default_str());
  report->callback([options] { write_report(*options); });
}

}  // namespace weft::cli
