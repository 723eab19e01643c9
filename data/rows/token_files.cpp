// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "data/rows/pieces.h"
#include "data/rows/token_writer.h"
#include "weft/error.h"
#include "weft/threads.h"

namespace weft {

namespace rows {

/// A piece and its documents, or what is wrong with it.
struct Work {
  Piece piece;
  std::vector<Document> made = {};
  std::exception_ptr error = {};
};

static void tokenize(std::vector<Work>& all, const DocumentReader& reader, int threads) {
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    for (size_t i; (i = next++) < all.size();) {
      try {
        all[i].made = documents_of(all[i].piece, reader);
      } catch (...) {
        all[i].error = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < std::min(threads, static_cast<int>(all.size())); ++i) {
    others.emplace_back(run);
  }
  run();
}

}  // namespace rows

TokenCounts write_token_files(std::span<const std::string> files, const TokenFileOptions& options,
                              const std::string& directory) {
  const int threads = options.threads > 0 ? options.threads : get_num_threads();
  const rows::DocumentReader reader(options);
  const DataKind kind = files.empty() ? DataKind::text : data_kind(files[0]);
  rows::TokenWriter writer(directory, options, kind == DataKind::lines);
  rows::PieceCutter cutter(files, options.tokenizer);
  TokenCounts counts;
  for (bool is_end = false; !is_end;) {
    std::vector<rows::Work> all;
    while (!is_end && all.size() < size_t{4} * static_cast<size_t>(threads)) {
      std::optional<rows::Piece> piece = cutter.next();
      is_end = !piece;
      if (piece) all.push_back({std::move(*piece)});
    }
    rows::tokenize(all, reader, threads);
    for (const rows::Work& work : all) {
      if (work.error) std::rethrow_exception(work.error);
      for (const rows::Document& document : work.made) writer.add(document);
      counts.bytes += std::ssize(work.piece.bytes);
    }
  }
  writer.finish();
  counts.tokens = writer.tokens();
  counts.documents = writer.documents();
  counts.files = writer.files();
  if (counts.tokens == 0) fail("data: ", files[0], " has 0 tokens, expected at least 1");
  return counts;
}

}  // namespace weft
