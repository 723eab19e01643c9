// SPDX-License-Identifier: Apache-2.0
#include "weft/text_dataset.h"

#include <algorithm>
#include <future>
#include <limits>

#include "data/rows/cache.h"
#include "data/rows/mixture.h"
#include "data/rows/order.h"
#include "data/rows/rows.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/threads.h"

namespace weft {

namespace rows {

/// Files that are read together: their rows come in one order, and the last ones are held out.
struct Source {
  std::vector<std::string> files;
  std::shared_ptr<const TokenFolder> folder;
  Tokens tokens;
  std::unique_ptr<const Rows> rows;
  int64_t held_out = 0;
  int64_t trained() const { return rows->count() - held_out; }
};
using Sources = std::vector<Source>;

/// The sources of a dataset, which may still be made by another thread.
struct Opened {
  DataOptions options;
  /// The files of each source.
  std::vector<std::vector<std::string>> files;
  /// Rows of a batch, in which rows are held out; 0: none are.
  int64_t batch;
  Mixture mixture;
  std::shared_future<Sources> sources;
  const Sources& all() const { return sources.get(); }
};

static int64_t vocabulary_of(const DataOptions& options) {
  if (options.vocabulary != 0) return options.vocabulary;
  return options.tokenizer ? options.tokenizer->size() : 256;
}

/// Returns whether the files are tokenised, and checks that they can be.
static bool is_tokenized(const std::vector<std::string>& files, const DataOptions& options) {
  const DataKind kind = data_kind(files[0]);
  const bool is_text = kind == DataKind::text;
  if (kind != DataKind::lines && !options.field.empty()) {
    fail("data: ", files[0], " has no fields, expected lines of JSON (.jsonl) for the field ",
         in_quotes(options.field));
  }
  if (is_text && options.loss == LossOn::assistant) {
    fail("data: ", files[0], " is text, expected conversations for a loss on the assistant alone");
  }
  if (kind == DataKind::tokens) return false;
  if (options.tokenizer && !(is_text && options.bytes)) return true;
  const int64_t vocabulary = vocabulary_of(options);
  if (!is_text || (vocabulary != kByteIds && !options.bytes)) {
    fail("data: ", files[0], " is ", is_text ? "text" : "lines of JSON",
         " and the model, which has ", vocabulary,
         " ids, no tokenizer, expected one; name it by --tokenizer, or make token files ",
         "by weft tokenize");
  }
  if (options.pack) {
    fail("data: ", files[0], " is text whose bytes are the tokens, expected documents to pack: ",
         "a tokenizer, or token files of weft tokenize");
  }
  return false;
}

static void hold_out(Source& source, const DataOptions& options, int64_t batch, bool is_only) {
  constexpr int64_t one_in = 20, most_batches = 16;
  const int64_t rows = source.rows->count(), least = batch > 0 && is_only ? 2 : 1;
  const bool is_joined = !source.tokens.index || !source.tokens.index->has_rows();
  if (rows < least) {
    const std::string row = concat("a row of ", options.sequence);
    const std::string all =
        least == 1 ? ", " + row : concat(": ", row, " to train on and one held out");
    if (is_joined && !options.pack) {
      fail("data: number of tokens is ", source.tokens.ids->size(), ", expected at least ",
           least * options.sequence + 1, all);
    }
    fail("data: number of rows is ", rows, ", expected at least ", least, all);
  }
  if (batch == 0 || rows < 2) return;
  source.held_out = std::clamp(rows / one_in, int64_t{1}, most_batches * batch);
  if (source.held_out > batch) source.held_out -= source.held_out % batch;
}

static void load(Source& source, const DataOptions& options) {
  std::vector<std::string> files = source.files;
  int64_t vocabulary = vocabulary_of(options);
  if (is_tokenized(files, options)) {
    const TokenFileOptions made{.tokenizer = *options.tokenizer,
                                .field = options.field,
                                .loss = options.loss,
                                .threads = options.threads};
    source.folder = tokenized(files, made, options.cache);
    files = data_files(std::vector{source.folder->path()});
    // All ids are below it: they need not be read through.
    if (options.tokenizer->size() <= vocabulary) vocabulary = std::numeric_limits<int64_t>::max();
  }
  Tokens& tokens = source.tokens;
  try {
    tokens.ids = std::make_shared<TokenStream>(files, vocabulary);
  } catch (const std::invalid_argument& problem) {
    if (!source.folder) throw;
    fail("data: the tokenizer has ", options.tokenizer->size(), " ids, of which ", source.files[0],
         " uses some beyond the ", vocabulary, " of the model, expected the model's tokenizer");
  }
  RowForm form{.sequence = options.sequence,
               .packs = options.pack,
               .seed = options.seed,
               .long_documents = options.long_documents};
  if (options.tokenizer) form.padding = options.tokenizer->eos().value_or(0);
  if (data_kind(files[0]) == DataKind::tokens) {
    const auto index = std::make_shared<TokenIndex>(files, tokens.ids->file_sizes());
    if (!source.folder && options.loss == LossOn::assistant && !index->has_marks()) {
      fail("data: ", files[0],
           " has no index (.idx) of the assistant's tokens, expected one for a ",
           "loss on them alone; weft tokenize writes it of conversations");
    }
    if (!source.folder && options.loss == LossOn::all) index->count_all();
    if (index->exists()) tokens.index = index;
  }
  if (options.pack && !tokens.index) {
    fail("data: ", files[0],
         " has no index (.idx) of its documents, expected one to pack them; "
         "weft tokenize writes it");
  }
  const bool has_rows = options.pack || (tokens.index && tokens.index->has_rows());
  source.rows = has_rows ? document_rows(tokens, form) : joined_rows(tokens, form);
  // What is open needs no name: a run that a signal ends leaves no files.
  if (tokens.ids->is_open()) source.folder.reset();
}

/// The rows to train on, or those held out.
class TextDataset final : public Dataset {
 public:
  TextDataset(std::shared_ptr<const Opened> opened, bool is_held_out)
      : opened_(std::move(opened)), is_held_out_(is_held_out) {}

  int64_t sequence() const override { return opened_->options.sequence; }
  bool has_segments() const override { return opened_->options.pack; }
  bool has_masks() const override {
    if (opened_->options.pack) return true;
    // It needs only the index of token files.
    return std::ranges::any_of(opened_->files, [&](const auto& files) {
      const DataKind kind = data_kind(files[0]);
      return kind == DataKind::lines ||
             (kind == DataKind::tokens &&
              std::ranges::any_of(opened_->all(), [](const Source& source) {
                const auto& index = source.tokens.index;
                return index && (index->has_rows() || index->has_marks());
              }));
    });
  }
  int64_t tokens() const override {
    int64_t total = 0;
    for (const Source& source : opened_->all()) total += source.tokens.ids->size();
    return total;
  }
  int64_t rows() const override {
    int64_t total = 0;
    for (const Source& source : opened_->all()) total += of(source);
    return total;
  }

  void read(int64_t first, const RowSpans& into) const override {
    const auto [ids, targets, segments] = into;
    const auto size = static_cast<size_t>(sequence());
    if (ids.size() != targets.size() || ids.size() % size != 0) {
      fail("data: numbers are ", ids.size(), " ids and ", targets.size(),
           " targets, expected equal numbers, in rows of ", size);
    }
    if (segments.size() != (has_segments() ? ids.size() : 0)) {
      fail("data: number of segments is ", segments.size(), ", expected ",
           has_segments() ? ids.size() : 0);
    }
    if (first < 0) fail("data: the first row must be at least 0, got ", first);
    for (size_t at = 0; at < ids.size(); at += size, ++first) {
      const auto [source, row] = is_held_out_ ? held_out(first) : trained(first);
      opened_->all()[source].rows->copy(row,
                                        {ids.subspan(at, size), targets.subspan(at, size),
                                         segments.empty() ? segments : segments.subspan(at, size)});
    }
  }

  std::vector<std::pair<std::string, uint64_t>> digests() const override {
    const DataOptions& o = opened_->options;
    const std::vector<std::string> files = paths();
    std::vector<std::pair<std::string, uint64_t>> all = {
        {"data", digest_of(files)}, {"data names", digest_of_names(files, o.paths)}};
    if (o.tokenizer && !o.bytes) all.emplace_back("tokenizer", o.tokenizer->digest());
    uint64_t form = mixed(static_cast<uint64_t>(o.loss), o.pack);
    form = xxh3_of(std::as_bytes(std::span(o.field)), form);
    form = xxh3_of(std::as_bytes(std::span(o.weights)), form);
    if (o.long_documents != LongDocuments::split) {
      all.emplace_back("long documents", static_cast<uint64_t>(o.long_documents));
    }
    if (o.pack || o.loss != LossOn::automatic || !o.field.empty() || !o.weights.empty()) {
      all.emplace_back("data form", form);
    }
    return all;
  }
  std::string description() const override {
    int64_t too_long = 0, documents = 0;
    for (const Source& source : opened_->all()) {
      too_long += source.rows->too_long();
      documents += source.rows->documents();
    }
    const std::string text = concat(tokens(), " tokens in ", paths().size(), " files");
    if (too_long == 0) return text;
    static constexpr const char* kFates[] = {"split", "truncated", "dropped"};
    return concat(text, "; ", too_long, " of ", documents, " documents are longer than a row of ",
                  sequence(), " tokens and are ",
                  kFates[static_cast<size_t>(opened_->options.long_documents)]);
  }

 private:
  std::vector<std::string> paths() const {
    std::vector<std::string> all;
    for (const auto& files : opened_->files) all.insert(all.end(), files.begin(), files.end());
    return all;
  }
  int64_t of(const Source& source) const {
    return is_held_out_ ? source.held_out : source.trained();
  }

  /// The source of a row, and the row's number in it.
  std::pair<size_t, int64_t> trained(int64_t index) const {
    const auto [source, own] = opened_->mixture.at(index);
    const int64_t count = opened_->all()[source].trained();
    const auto epoch = static_cast<uint64_t>(own / count);
    const uint64_t seed = opened_->options.seed ^ static_cast<uint64_t>(source) << 32;
    return {source, permuted(own % count, count, scrambled(scrambled(seed) ^ epoch))};
  }
  std::pair<size_t, int64_t> held_out(int64_t index) const {
    const Sources& all = opened_->all();
    const int64_t total = rows();
    index %= total;
    // A few batches hold rows of all sources.
    if (all.size() > 1) index = permuted(index, total, scrambled(opened_->options.seed));
    size_t source = 0;
    for (; index >= all[source].held_out; ++source) index -= all[source].held_out;
    return {source, all[source].trained() + index};
  }

  std::shared_ptr<const Opened> opened_;
  bool is_held_out_;
};

static std::shared_ptr<const Opened> opened(const DataOptions& options, int64_t batch) {
  if (options.sequence < 1) {
    fail("data: tokens of a row must be at least 1, got ", options.sequence);
  }
  std::vector<double> weights = options.weights;
  if (!weights.empty() && weights.size() != options.paths.size()) {
    fail("data: number of weights is ", weights.size(), ", expected one for each of ",
         options.paths.size(), " paths");
  }
  auto sources = std::make_shared<Sources>(std::max<size_t>(1, weights.size()));
  std::vector<std::vector<std::string>> files;
  bool is_slow = false;
  for (size_t i = 0; i < sources->size(); ++i) {
    files.push_back(data_files(weights.empty() ? options.paths : std::vector{options.paths[i]}));
    (*sources)[i].files = files.back();
    const bool is_made = is_tokenized(files.back(), options);
    is_slow = is_slow || is_made;
    if (!is_made) continue;
    for (const std::string& path : files.back()) (void)opened_text(path);
  }
  if (weights.empty()) weights = {1};
  const std::shared_ptr<Opened> made(
      new Opened{options, std::move(files), batch, Mixture(weights, options.seed), {}});
  DataOptions own = options;
  // The thread has its own number of threads for kernels.
  if (own.threads == 0) own.threads = get_num_threads();
  made->sources =
      std::async(is_slow ? std::launch::async : std::launch::deferred, [sources, own, batch] {
        for (Source& source : *sources) {
          load(source, own);
          hold_out(source, own, batch, sources->size() == 1);
        }
        const auto held = [](const Source& s) { return s.held_out > 0; };
        if (batch > 0 && std::ranges::none_of(*sources, held)) {
          fail(
              "data: each source has 1 row, expected one of at least 2, of which some are held "
              "out");
        }
        return std::move(*sources);
      }).share();
  if (!is_slow) (void)made->all();
  return made;
}

}  // namespace rows

std::shared_ptr<const Dataset> text_dataset(const DataOptions& options) {
  return std::make_shared<rows::TextDataset>(rows::opened(options, 0), false);
}

DataSplit split_text_dataset(const DataOptions& options, int64_t batch) {
  if (batch < 1) fail("data: rows of a batch must be at least 1, got ", batch);
  const auto opened = rows::opened(options, batch);
  return {std::make_shared<rows::TextDataset>(opened, false),
          std::make_shared<rows::TextDataset>(opened, true)};
}

}  // namespace weft
