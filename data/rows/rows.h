// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/rows/token_index.h"
#include "weft/dataset.h"
#include "weft/extend/token_files.h"
#include "weft/text_dataset.h"

namespace weft::rows {

/// The tokens of a source and, where they are token files, their documents.
struct Tokens {
  std::shared_ptr<const TokenStream> ids;
  std::shared_ptr<const TokenIndex> index;

  /// Fills a part of a row by the tokens from `from` on and those that follow.
  void copy(int64_t from, const RowSpans& into) const;
};

/// Options of turning documents into rows.
struct RowForm {
  int64_t sequence = 1;
  bool packs = false;
  /// The id of places without a token.
  int64_t padding = 0;
  uint64_t seed = 0;
  LongDocuments long_documents = LongDocuments::split;
};

/// The rows of one source, in a fixed order.
class Rows {
 public:
  Rows() = default;
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  virtual ~Rows() = default;
  virtual int64_t count() const = 0;
  /// Documents, and those of them that are longer than a row; 0 of rows of one sequence.
  virtual int64_t documents() const { return 0; }
  virtual int64_t too_long() const { return 0; }
  /// Writes one row; `segments` may be empty. Several threads may copy at once.
  virtual void copy(int64_t row, const RowSpans& into) const = 0;
};

/// Rows of one sequence of tokens; the last tokens that do not fill a row are left out.
std::unique_ptr<const Rows> joined_rows(const Tokens& tokens, const RowForm& form);

/// Rows of documents. A document of n tokens has n - 1 places, as its last token is a target only;
/// one that has more than a row is cut into whole rows and a rest, truncated or dropped. A rest has
/// a separate row, or with `packs` shares one: in an order of the documents that the seed shuffles,
/// each goes into the row with the fewest free places among those that have enough, of these the
/// first.
std::unique_ptr<const Rows> document_rows(const Tokens& tokens, const RowForm& form);

}  // namespace weft::rows
