// SPDX-License-Identifier: Apache-2.0
#include "weft/text_dataset.h"

#include <algorithm>

#include "data/rows/order.h"
#include "data/rows/rows.h"
#include "weft/error.h"
#include "weft/extend/token_files.h"

namespace weft {

namespace {

/// Rows of consecutive tokens, whose targets are the tokens that follow.
class JoinedRows final : public rows::Rows {
 public:
  JoinedRows(std::shared_ptr<const TokenStream> tokens, int64_t sequence)
      : tokens_(std::move(tokens)), sequence_(sequence) {}
  int64_t count() const override { return (tokens_->size() - 1) / sequence_; }
  void copy(int64_t row, const RowSpans& into) const override {
    tokens_->copy(row * sequence_, into.ids);
    tokens_->copy(row * sequence_ + 1, into.targets);
  }

 private:
  std::shared_ptr<const TokenStream> tokens_;
  int64_t sequence_;
};

/// The files of a dataset.
struct Source {
  DataOptions options;
  std::shared_ptr<const TokenStream> tokens;
  std::shared_ptr<const rows::Rows> rows;
};

/// Rows [first, first + count) of a source: in their order, or shuffled anew each epoch.
class TextDataset final : public Dataset {
 public:
  TextDataset(std::shared_ptr<const Source> source, int64_t first, int64_t count, bool is_shuffled)
      : source_(std::move(source)), first_(first), count_(count), is_shuffled_(is_shuffled) {}

  int64_t sequence() const override { return source_->options.sequence; }
  int64_t rows() const override { return count_; }
  bool has_masks() const override { return false; }
  void read(int64_t first, const RowSpans& into) const override {
    const auto [ids, targets, segments] = into;
    const auto size = static_cast<size_t>(sequence());
    if (ids.size() != targets.size() || ids.size() % size != 0) {
      fail("data: numbers are ", ids.size(), " ids and ", targets.size(),
           " targets, expected equal numbers, in rows of ", size);
    }
    if (first < 0) fail("data: the first row must be at least 0, got ", first);
    for (size_t at = 0; at < ids.size(); at += size, ++first) {
      source_->rows->copy(first_ + place(first),
                          {ids.subspan(at, size), targets.subspan(at, size)});
    }
  }
  std::vector<std::pair<std::string, uint64_t>> digests() const override {
    const auto& paths = source_->tokens->paths();
    return {{"data", digest_of(paths)},
            {"data names", digest_of_names(paths, source_->options.paths)}};
  }
  std::string description() const override {
    return concat(source_->tokens->size(), " tokens in ", source_->tokens->paths().size(),
                  " files");
  }

 private:
  int64_t place(int64_t index) const {
    if (!is_shuffled_) return index % count_;
    const auto epoch = static_cast<uint64_t>(index / count_);
    const uint64_t key = rows::scrambled(rows::scrambled(source_->options.seed) ^ epoch);
    return rows::permuted(index % count_, count_, key);
  }

  std::shared_ptr<const Source> source_;
  int64_t first_, count_;
  bool is_shuffled_;
};

}  // namespace

static std::shared_ptr<const Source> opened(const DataOptions& options) {
  if (options.sequence < 1) {
    fail("data: tokens of a row must be at least 1, got ", options.sequence);
  }
  auto source = std::make_shared<Source>();
  source->options = options;
  source->tokens = std::make_shared<TokenStream>(options.paths, options.vocabulary);
  source->rows = std::make_shared<JoinedRows>(source->tokens, options.sequence);
  return source;
}

std::shared_ptr<const Dataset> text_dataset(const DataOptions& options) {
  const auto source = opened(options);
  const int64_t rows = source->rows->count();
  if (rows < 1) {
    fail("data: number of tokens is ", source->tokens->size(), ", expected at least ",
         options.sequence + 1, ", a row of ", options.sequence);
  }
  return std::make_shared<TextDataset>(source, 0, rows, true);
}

DataSplit split_text_dataset(const DataOptions& options, int64_t batch) {
  if (batch < 1) fail("data: rows of a batch must be at least 1, got ", batch);
  constexpr int64_t one_in = 20, most_batches = 16;
  const auto source = opened(options);
  const int64_t rows = source->rows->count();
  if (rows <= batch) {
    fail("data: number of tokens is ", source->tokens->size(), ", expected at least ",
         (batch + 1) * options.sequence + 1, ": a row of ", options.sequence,
         " to train on and a batch of ", batch, " held out");
  }
  const int64_t held_out = std::clamp(rows / one_in / batch, int64_t{1}, most_batches) * batch;
  return {std::make_shared<TextDataset>(source, 0, rows - held_out, true),
          std::make_shared<TextDataset>(source, rows - held_out, held_out, false)};
}

}  // namespace weft
