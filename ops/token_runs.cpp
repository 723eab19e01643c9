// SPDX-License-Identifier: Apache-2.0
#include "ops/token_runs.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "ops/definition.h"
#include "ops/dims.h"
#include "ops/promotion.h"
#include "src/kernels/attention/attention.h"
#include "src/kernels/copy/copy.h"
#include "weft/ops.h"

namespace weft {

namespace {

/// Numbers of attention of some queries and keys.
struct PartValues {
  double scale, softcap, offset, window;
};

}  // namespace

static MemoryBlock heads_first(const MemoryBlock& block) { return exchanged(block, 1, 2); }

static AttentionArguments part_arguments(const Call& c) {
  const auto values = unpack<PartValues>(c.attributes().values);
  return {.scale = values.scale,
          .causal = true,
          .query_offset = static_cast<int64_t>(values.offset),
          .window = static_cast<int64_t>(values.window),
          .softcap = values.softcap};
}

static DType wide(DType dtype) { return dtype == f64 ? f64 : f32; }

static OpSpec part_spec(bool backward) {
  return {
      .name = backward ? "attention_part_backward" : "attention_part",
      .rule_of =
          [=](const Attributes&, std::span<const Shape> shapes) {
            // A rank may have no heads at all.
            const std::string heads = shapes[1][2] == 0 ? "g" : "(g r)";
            const std::string q = "b s " + heads + " [d]", kv = "b [t] g [d], b [t] g [d]",
                              lse = "b " + heads + " s";
            return Rule{backward ? q + ", " + kv + ", " + q + ", " + lse + ", " + q + " -> " + q +
                                       ", " + kv
                                 : q + ", " + kv + " -> " + q + ", " + lse};
          },
      .takes = {anything()},
      .structure = {"one flag: whether all queries see all keys",
                    [](const Dims& s, std::span<const Shape>) { return s.ndim() == 1; }},
      .dtype = [=](const Attributes&, std::span<const DType> dtypes,
                   int result) { return backward || result == 0 ? dtypes[0] : wide(dtypes[0]); },
      .products =
          [=](const Attributes& a) { return (backward ? 5.0 : 2.0) / (a.structure[0] ? 1 : 2); },
      .differentiable = false};
}

static OpSpec part_forward_spec() {
  OpSpec spec = part_spec(false);
  spec.forward = [](const Call& c) {
    const DenseBlock q = DenseBlock::of_rows(c.in(0)), k = DenseBlock::of_rows(c.in(1)),
                     v = DenseBlock::of_rows(c.in(2));
    attention({heads_first(q), heads_first(k), heads_first(v), heads_first(c.out(0)), c.out(1),
               part_arguments(c)});
  };
  return spec;
}

static OpSpec part_backward_spec() {
  OpSpec spec = part_spec(true);
  spec.forward = [](const Call& c) {
    const DenseBlock q = DenseBlock::of_rows(c.in(0)), k = DenseBlock::of_rows(c.in(1)),
                     v = DenseBlock::of_rows(c.in(2)), dout = DenseBlock::of_rows(c.in(5));
    attention_backward({{heads_first(q), heads_first(k), heads_first(v), heads_first(c.in(3)),
                         c.in(4), part_arguments(c)},
                        heads_first(dout),
                        heads_first(c.out(0)),
                        heads_first(c.out(1)),
                        heads_first(c.out(2)),
                        MemoryBlock()});
  };
  return spec;
}

static const Op& part_op() {
  static const Op op{part_forward_spec()};
  return op;
}

static const Op& part_backward_op() {
  static const Op op{part_backward_spec()};
  return op;
}

static Attributes attributes_of(const PairOptions& options, int64_t offset, bool sees_all) {
  return {
      .structure = {sees_all},
      .values = pack_values(PartValues{options.scale, options.softcap, static_cast<double>(offset),
                                       static_cast<double>(options.window)})};
}

HostOrder::HostOrder(std::vector<int64_t> places, std::vector<int64_t> segments, int64_t batch,
                     int64_t sequence)
    : places_(std::move(places)),
      segments_(std::move(segments)),
      batch_(batch),
      sequence_(sequence) {}

std::vector<TokenRun> HostOrder::runs_of_row(int64_t row, int64_t begin, int64_t end) const {
  std::vector<TokenRun> runs;
  const auto at = [&](int64_t token) { return static_cast<size_t>(row * sequence_ + token); };
  for (int64_t token = begin; token < end; ++token) {
    const int64_t place = places_[at(token)];
    const int64_t segment = segments_.empty() ? 0 : segments_[at(token)];
    const bool follows = !runs.empty() && runs.back().segment == segment &&
                         runs.back().place + runs.back().count == place;
    if (!follows) runs.push_back({token - begin, 0, place, segment});
    ++runs.back().count;
  }
  return runs;
}

std::vector<RowRuns> HostOrder::runs(int64_t begin, int64_t end) const {
  std::vector<RowRuns> all;
  for (int64_t row = 0; row < batch_; ++row) {
    std::vector<TokenRun> runs = runs_of_row(row, begin, end);
    if (all.empty() || all.back().runs != runs) all.push_back({row, row, std::move(runs)});
    all.back().end_row = row + 1;
  }
  return all;
}

SortedRuns::SortedRuns(const std::vector<RowRuns>& given) {
  for (const RowRuns& rows : given) {
    std::vector<size_t> by_place(rows.runs.size());
    std::iota(by_place.begin(), by_place.end(), size_t{0});
    std::ranges::sort(by_place, {}, [&](size_t i) {
      return std::tuple(rows.runs[i].segment, rows.runs[i].place);
    });
    is_sorted = is_sorted && std::ranges::is_sorted(by_place);
    std::vector<int64_t> to(rows.runs.size());
    RowRuns sorted{rows.first_row, rows.end_row, {}};
    int64_t at = 0;
    for (const size_t i : by_place) {
      const TokenRun& run = rows.runs[i];
      to[i] = at;
      const bool follows = !sorted.runs.empty() && sorted.runs.back().segment == run.segment &&
                           sorted.runs.back().place + sorted.runs.back().count == run.place;
      if (!follows) sorted.runs.push_back({at, 0, run.place, run.segment});
      sorted.runs.back().count += run.count;
      at += run.count;
    }
    moves.emplace_back(rows, std::move(to));
    runs.push_back(std::move(sorted));
  }
}

static Tensor part_of(const Tensor& x, int dim, int64_t begin, int64_t end) {
  return begin == 0 && end == x.size(dim) ? x : slice(x, dim, begin, end);
}

/// Tokens [begin, begin + count) of the pair's rows of x, [batch, tokens, ...].
static Tensor tokens_of(const Tensor& x, int64_t first_row, int64_t end_row, int64_t begin,
                        int64_t count, int dim = 1) {
  return part_of(part_of(x, 0, first_row, end_row), dim, begin, begin + count);
}

Tensor SortedRuns::moved(const Tensor& x, bool back) const {
  if (is_sorted) return x;
  Tensor made = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  for (const auto& [rows, to] : moves) {
    for (size_t i = 0; i < rows.runs.size(); ++i) {
      const TokenRun& run = rows.runs[i];
      const int64_t there = back ? run.begin : to[i], here = back ? to[i] : run.begin;
      copy_(tokens_of(made, rows.first_row, rows.end_row, there, run.count),
            tokens_of(x, rows.first_row, rows.end_row, here, run.count));
    }
  }
  return made;
}

Tensor SortedRuns::sorted(const Tensor& x) const { return moved(x, false); }
Tensor SortedRuns::unsorted(const Tensor& x) const { return moved(x, true); }

/// The pair of the tokens of both runs that see each other, if there are any.
static bool is_pair(const TokenRun& q, const TokenRun& k, int64_t window, RunPair& pair) {
  if (q.segment != k.segment) return false;
  int64_t first = k.place, end = std::min(k.place + k.count, q.place + q.count);
  if (window > 0) first = std::max(first, q.place - window + 1);
  if (first >= end) return false;
  const int64_t first_query = std::max(q.place, first);
  int64_t end_query = q.place + q.count;
  if (window > 0) end_query = std::min(end_query, end - 1 + window);
  if (first_query >= end_query) return false;
  pair.query = q.begin + first_query - q.place, pair.queries = end_query - first_query;
  pair.key = k.begin + first - k.place, pair.keys = end - first;
  pair.offset = first_query - first;
  return true;
}

std::vector<RunPair> pairs_of(const std::vector<RowRuns>& queries, const std::vector<RowRuns>& keys,
                              int64_t window) {
  std::vector<RunPair> pairs;
  for (const RowRuns& q : queries) {
    for (const RowRuns& k : keys) {
      RunPair pair{
          std::max(q.first_row, k.first_row), std::min(q.end_row, k.end_row), 0, 0, 0, 0, 0};
      if (pair.first_row >= pair.end_row) continue;
      for (const TokenRun& of_queries : q.runs) {
        for (const TokenRun& of_keys : k.runs) {
          if (is_pair(of_queries, of_keys, window, pair)) pairs.push_back(pair);
        }
      }
    }
  }
  return pairs;
}

PairResults::PairResults(const Tensor& q, DType dtype) {
  out = zeros(q.shape(), {.dtype = dtype, .device = q.device()});
  lse = full({q.size(0), q.size(2), q.size(1)}, -std::numeric_limits<double>::infinity(),
             {.dtype = wide(q.dtype()), .device = q.device()});
  has_result.resize(static_cast<size_t>(q.size(0) * q.size(1)));
}

/// Whether no query of the pair has a result yet; they have one from now on.
bool PairResults::takes_first(const RunPair& pair) {
  bool is_first = true;
  for (int64_t row = pair.first_row; row < pair.end_row; ++row) {
    const auto begin = has_result.begin() + row * out.size(1) + pair.query;
    is_first = is_first && std::find(begin, begin + pair.queries, true) == begin + pair.queries;
    std::fill(begin, begin + pair.queries, true);
  }
  return is_first;
}

static bool sees_all(const RunPair& pair) { return pair.offset >= pair.keys - 1; }

void PairResults::add(const Tensor& q, const Tensor& k, const Tensor& v,
                      const std::vector<RunPair>& pairs, const PairOptions& options) {
  for (const RunPair& pair : pairs) {
    const auto of_queries = [&](const Tensor& x, int dim = 1) {
      return tokens_of(x, pair.first_row, pair.end_row, pair.query, pair.queries, dim);
    };
    const auto of_keys = [&](const Tensor& x) {
      return tokens_of(x, pair.first_row, pair.end_row, pair.key, pair.keys);
    };
    const Tensors part = part_op().call(Tensors{of_queries(q), of_keys(k), of_keys(v)},
                                        attributes_of(options, pair.offset, sees_all(pair)));
    const Tensor out_here = of_queries(out), lse_here = of_queries(lse, 2);
    if (takes_first(pair)) {
      copy_(out_here, part[0]);
      copy_(lse_here, part[1]);
      continue;
    }
    // The merge of two parts of the keys: sums weighted by their share of the whole softmax.
    const Tensor both = logaddexp(lse_here, part[1]);
    const auto share = [&](const Tensor& own) {
      return unsqueeze(permute(exp(sub(own, both)), {0, 2, 1}), 3);
    };
    copy_(out_here, weft::add(mul(out_here, share(lse_here)),
                              mul(as_dtype(part[0], out.dtype()), share(part[1]))));
    copy_(lse_here, both);
  }
}

void PairGradients::add(const Tensor& k, const Tensor& v, const std::vector<RunPair>& pairs,
                        const Tensor& dq, const Tensor& dk, const Tensor& dv) const {
  for (const RunPair& pair : pairs) {
    const auto of_queries = [&](const Tensor& x, int dim = 1) {
      return tokens_of(x, pair.first_row, pair.end_row, pair.query, pair.queries, dim);
    };
    const auto of_keys = [&](const Tensor& x) {
      return tokens_of(x, pair.first_row, pair.end_row, pair.key, pair.keys);
    };
    const Tensors part =
        part_backward_op().call(Tensors{of_queries(q), of_keys(k), of_keys(v), of_queries(out),
                                        of_queries(lse, 2), of_queries(dout)},
                                attributes_of(options, pair.offset, sees_all(pair)));
    add_(of_queries(dq), part[0]);
    add_(of_keys(dk), part[1]);
    add_(of_keys(dv), part[2]);
  }
}

void count_pairs(const Tensor& q, const Tensor& k, const PairOptions& options, bool backward) {
  const Attributes attributes = attributes_of(options, 0, false);
  if (!backward) {
    part_op().call(Tensors{q, k, k}, attributes);
    return;
  }
  const Tensor lse =
      empty({q.size(0), q.size(2), q.size(1)}, {.dtype = wide(q.dtype()), .device = q.device()});
  part_backward_op().call(Tensors{q, k, k, q, lse, q}, attributes);
}

}  // namespace weft
