// SPDX-License-Identifier: Apache-2.0
#include "data/rows/rows.h"

#include <algorithm>
#include <set>

#include "data/rows/order.h"
#include "weft/ops/networks.h"

namespace weft::rows {

void Tokens::copy(int64_t from, const RowSpans& into) const {
  ids->copy(from, into.ids);
  ids->copy(from + 1, into.targets);
  if (index) index->ignore(from + 1, into.targets);
}

namespace {

class JoinedRows final : public Rows {
 public:
  JoinedRows(Tokens tokens, int64_t sequence) : tokens_(std::move(tokens)), sequence_(sequence) {}
  int64_t count() const override { return (tokens_.ids->size() - 1) / sequence_; }
  void copy(int64_t row, const RowSpans& into) const override {
    tokens_.copy(row * sequence_, into);
    std::ranges::fill(into.segments, 0);
  }

 private:
  Tokens tokens_;
  int64_t sequence_;
};

/// Tokens [first, first + count) of a document, at most a row.
struct Part {
  int64_t first = 0, count = 0;
};

class DocumentRows final : public Rows {
 public:
  DocumentRows(Tokens tokens, const RowForm& form) : tokens_(std::move(tokens)), form_(form) {
    form.packs ? pack() : pad();
  }
  int64_t count() const override { return std::ssize(ends_); }
  int64_t documents() const override { return std::ssize(tokens_.index->starts()); }
  int64_t too_long() const override { return too_long_; }
  void copy(int64_t row, const RowSpans& into) const override {
    const auto at = static_cast<size_t>(row);
    size_t place = 0;
    int64_t segment = 0;
    for (size_t i = at == 0 ? 0 : ends_[at - 1]; i < ends_[at]; ++i, ++segment) {
      const auto count = static_cast<size_t>(parts_[i].count);
      tokens_.copy(parts_[i].first,
                   {into.ids.subspan(place, count), into.targets.subspan(place, count)});
      if (!into.segments.empty()) {
        std::ranges::fill(into.segments.subspan(place, count), segment);
      }
      place += count;
    }
    std::ranges::fill(into.ids.subspan(place), form_.padding);
    std::ranges::fill(into.targets.subspan(place), kIgnoredTarget);
    // Padding counts as one more document.
    if (!into.segments.empty()) std::ranges::fill(into.segments.subspan(place), segment);
  }

 private:
  /// Calls use(part) for the parts of a document: those that fill a row, then the rest.
  template <class Use> void for_parts(size_t document, const Use& use) {
    const auto& starts = tokens_.index->starts();
    int64_t first = starts[document];
    int64_t end = (document + 1 < starts.size() ? starts[document + 1] : tokens_.ids->size()) - 1;
    if (end - first > form_.sequence) {
      ++too_long_;
      if (form_.long_documents == LongDocuments::drop) return;
      if (form_.long_documents == LongDocuments::truncate) end = first + form_.sequence;
    }
    for (; first < end; first += form_.sequence) {
      use(Part{first, std::min(form_.sequence, end - first)});
    }
  }

  void pad() {
    for (size_t i = 0; i < tokens_.index->starts().size(); ++i) {
      for_parts(i, [&](const Part& part) {
        parts_.push_back(part);
        ends_.push_back(parts_.size());
      });
    }
  }

  void pack() {
    struct Placed {
      int64_t row;
      Part part;
    };
    std::vector<Placed> placed;
    // The free places of each row that has some, and the row.
    std::set<std::pair<int64_t, int64_t>> rooms;
    int64_t rows = 0;
    const auto documents = std::ssize(tokens_.index->starts());
    for (int64_t i = 0; i < documents; ++i) {
      const auto document = static_cast<size_t>(permuted(i, documents, scrambled(form_.seed)));
      for_parts(document, [&](const Part& part) {
        auto found = rooms.lower_bound({part.count, 0});
        const auto [room, row] = found == rooms.end() ? std::pair(form_.sequence, rows++) : *found;
        if (found != rooms.end()) rooms.erase(found);
        if (room > part.count) rooms.emplace(room - part.count, row);
        placed.push_back({row, part});
      });
    }
    std::ranges::stable_sort(placed, {}, &Placed::row);
    for (const Placed& one : placed) {
      if (one.row == std::ssize(ends_)) ends_.push_back(parts_.size());
      parts_.push_back(one.part);
      ends_.back() = parts_.size();
    }
  }

  Tokens tokens_;
  RowForm form_;
  /// The parts of all rows, and where each row's end.
  std::vector<Part> parts_;
  std::vector<size_t> ends_;
  int64_t too_long_ = 0;
};

}  // namespace

std::unique_ptr<const Rows> joined_rows(const Tokens& tokens, const RowForm& form) {
  return std::make_unique<JoinedRows>(tokens, form.sequence);
}

std::unique_ptr<const Rows> document_rows(const Tokens& tokens, const RowForm& form) {
  return std::make_unique<DocumentRows>(tokens, form);
}

}  // namespace weft::rows
