// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "data/tokenizer/piece_normalizer.h"
#include "data/tokenizer/text_model.h"
#include "data/unicode/unicode.h"
#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft::text {

static constexpr int64_t kLargestModel = int64_t{64} << 20;
/// The most bytes of the merges that are derived from pieces; those of Gemma's have 50 MB.
static constexpr size_t kLargestMerges = size_t{512} << 20;

/// A field of a message of protocol buffers.
struct ProtobufField {
  uint32_t number = 0;
  /// The value of a number, or the bits of a float or double.
  uint64_t value = 0;
  /// The bytes of a text or a message.
  std::string_view bytes = {};
  bool is_bytes = false;
};

/// Calls `use` with the fields of a message in the order of its bytes. std::invalid_argument, which
/// begins with `what`, when the message is damaged.
template <class Use>
static void for_fields(const std::string& what, std::string_view message, const Use& use) {
  const auto check = [&](bool is_good) {
    if (!is_good) fail(what, ": the file is damaged, expected a model of SentencePiece");
  };
  const auto take = [&](size_t bytes) {
    check(bytes <= message.size());
    const std::string_view taken = message.substr(0, bytes);
    message.remove_prefix(bytes);
    return taken;
  };
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      check(shift < 64);
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (!message.empty()) {
    const uint64_t key = varint(), kind = key & 7;
    ProtobufField field{.number = static_cast<uint32_t>(key >> 3), .is_bytes = kind == 2};
    if (kind == 0) {
      field.value = varint();
    } else if (kind == 2) {
      field.bytes = take(varint());
    } else {
      check(kind == 1 || kind == 5);
      const std::string_view bits = take(kind == 1 ? 8 : 4);
      std::memcpy(&field.value, bits.data(), bits.size());
    }
    use(field);
  }
}

/// The contents of sentencepiece_model.proto, as far as it decides ids and texts.
struct PieceModel {
  enum Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  enum Kind { unigram = 1, bpe = 2 };
  struct Piece {
    std::string text = {};
    float score = 0;
    uint64_t type = normal;
  };
  std::vector<Piece> pieces = {};
  uint64_t kind = unigram;
  bool byte_fallback = false;
  PieceNormalization normalization = {};
  std::string unknown_text = " \xE2\x81\x87 ";  // U+2047
};

static PieceModel::Piece read_piece(const std::string& what, std::string_view message) {
  PieceModel::Piece piece;
  for_fields(what, message, [&](const ProtobufField& field) {
    if (field.number == 1 && field.is_bytes) piece.text = field.bytes;
    if (field.number == 2) piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    if (field.number == 3) piece.type = field.value;
  });
  if (piece.text.size() > kLongestPiece) {
    fail(what, ": a piece has ", piece.text.size(), " bytes, expected at most ", kLongestPiece);
  }
  const bool is_valid = !piece.text.empty() && valid_prefix(piece.text) == piece.text.size();
  if (!is_valid || std::isnan(piece.score)) {
    fail(what, ": the piece ", in_quotes(piece.text), " has the score ", piece.score,
         ", expected a text in UTF-8 and a number");
  }
  return piece;
}

static void read_training(const std::string& what, std::string_view message, PieceModel& model) {
  for_fields(what, message, [&](const ProtobufField& field) {
    if (field.number == 3) model.kind = field.value;
    if (field.number == 24) model.normalization.space_is_suffix = field.value != 0;
    if (field.number == 35) model.byte_fallback = field.value != 0;
    if (field.number == 44 && field.is_bytes) model.unknown_text = field.bytes;
  });
}

static void read_normalization(const std::string& what, std::string_view message,
                               PieceNormalization& rules) {
  for_fields(what, message, [&](const ProtobufField& field) {
    if (field.number == 2 && !field.bytes.empty()) {
      rules.replacements = Replacements(what, field.bytes);
    }
    if (field.number == 3) rules.adds_space = field.value != 0;
    if (field.number == 4) rules.removes_spaces = field.value != 0;
    if (field.number == 5) rules.escapes_spaces = field.value != 0;
  });
}

static PieceModel read_piece_model(const std::string& what, std::string_view message) {
  PieceModel model;
  for_fields(what, message, [&](const ProtobufField& field) {
    if (!field.is_bytes) return;
    if (field.number == 1) model.pieces.push_back(read_piece(what, field.bytes));
    if (field.number == 2) read_training(what, field.bytes, model);
    if (field.number == 3) read_normalization(what, field.bytes, model.normalization);
  });
  if (model.kind != PieceModel::unigram && model.kind != PieceModel::bpe) {
    fail(what, ": the model's kind is ", model.kind, ", expected 1 (unigram) or 2 (bpe)");
  }
  const auto is_unknown = [](const auto& piece) { return piece.type == PieceModel::unknown; };
  const auto count = std::ranges::count_if(model.pieces, is_unknown);
  if (count != 1) fail(what, ": it has ", count, " unknown pieces, expected 1");
  return model;
}

static char checked_byte(const std::string& what, const std::string& piece) {
  const int byte = byte_of_piece(piece);
  if (byte < 0) fail(what, ": the byte piece is ", in_quotes(piece), ", expected one like <0x0A>");
  return static_cast<char>(byte);
}

static void set_piece_text(const std::string& what, const PieceModel& from, size_t id,
                           TextModel& model) {
  const PieceModel::Piece& piece = from.pieces[id];
  std::string& text = model.texts.following[id];
  if (piece.type == PieceModel::byte) {
    model.texts.is_byte[id] = true;
    text = std::string(1, checked_byte(what, piece.text));
  } else if (piece.type == PieceModel::unknown) {
    text = from.unknown_text;
    model.texts.unstripped = static_cast<int64_t>(id);
  } else if (piece.type != PieceModel::control) {
    const std::string token = std::exchange(text, {});
    append_replaced(text, token, kSpacePiece, " ");
  }
}

/// The merges that make pieces: every pair of pieces whose text is a piece; a larger score is
/// merged first, equal scores from left to right.
static BpeSpec merges_of_pieces(const std::string& what, const PieceModel& from) {
  BpeSpec spec{.vocabulary = {},
               .merges = {},
               .byte_fallback = from.byte_fallback,
               .unknown = {},
               .fuse_unknown = true};
  std::vector<size_t> order;
  for (size_t id = 0; id < from.pieces.size(); ++id) {
    const PieceModel::Piece& piece = from.pieces[id];
    if (piece.type == PieceModel::unknown) spec.unknown = piece.text;
    if (piece.type == PieceModel::control) continue;
    spec.vocabulary.emplace(piece.text, static_cast<int32_t>(id));
    if (piece.type == PieceModel::normal) order.push_back(id);
  }
  const auto score = [&](size_t id) { return from.pieces[id].score; };
  std::ranges::stable_sort(order, std::greater(), score);
  int32_t rank = -1;
  size_t bytes = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || score(order[i]) != score(order[i - 1])) ++rank;
    const std::string& text = from.pieces[order[i]].text;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((text[cut] & 0xC0) == 0x80) continue;
      const auto part = [&](size_t begin, size_t size) {
        const auto found = spec.vocabulary.find(std::string_view(text).substr(begin, size));
        return found != spec.vocabulary.end() &&
               from.pieces[static_cast<size_t>(found->second)].type == PieceModel::normal;
      };
      if (!part(0, cut) || !part(cut, text.size() - cut)) continue;
      bytes += text.size() + sizeof spec.merges[0];
      if (bytes > kLargestMerges) {
        fail(what, ": the merges of its pieces have ", bytes, " bytes, expected at most ",
             kLargestMerges);
      }
      spec.merges.emplace_back(text.substr(0, cut), text.substr(cut));
      spec.ranks.push_back(rank);
    }
  }
  return spec;
}

static std::vector<AddedToken> tokens_of_type(const PieceModel& from, PieceModel::Type type) {
  std::vector<AddedToken> tokens;
  for (size_t id = 0; id < from.pieces.size(); ++id) {
    const PieceModel::Piece& piece = from.pieces[id];
    if (piece.type != type) continue;
    tokens.push_back({.id = static_cast<int32_t>(id),
                      .content = piece.text,
                      .special = type == PieceModel::control});
  }
  return tokens;
}

static void add_bpe(const std::string& what, const PieceModel& from, TextModel& model) {
  BpeSpec spec = merges_of_pieces(what, from);
  model.caches = merges_keep_spaces_first(spec);
  model.words = std::make_unique<Bpe>(what, std::move(spec));
  if (model.caches) model.splitter.add({.find = regex_finder(what, kPiecesFromSpaces)});
  model.added_normalized = AddedTokens(tokens_of_type(from, PieceModel::user_defined));
}

static void add_unigram(const std::string& what, const PieceModel& from, TextModel& model) {
  UnigramSpec spec;
  for (size_t i = 0; i < from.pieces.size(); ++i) {
    const PieceModel::Piece& piece = from.pieces[i];
    const auto id = static_cast<int32_t>(i);
    if (piece.type == PieceModel::unknown) spec.unknown = id;
    if (piece.type == PieceModel::byte && from.byte_fallback) {
      spec.bytes[static_cast<unsigned char>(checked_byte(what, piece.text))] = id;
    }
    if (piece.type != PieceModel::normal && piece.type != PieceModel::user_defined) continue;
    spec.pieces.push_back({piece.text, id, piece.score, piece.type == PieceModel::user_defined});
  }
  model.words = std::make_unique<Unigram>(spec);
  model.caches = false;
}

/// Tokens that are found in the text itself: the model's control tokens and those of other files.
static void add_tokens(const std::string& what, const PieceModel& from,
                       const std::vector<AddedToken>& added, TextModel& model) {
  std::vector<AddedToken> tokens = tokens_of_type(from, PieceModel::control);
  for (const AddedToken& token : added) {
    set_token(what, model, token.content, token.id);
    const auto id = static_cast<size_t>(token.id);
    model.special[id] = token.special;
    const bool is_new = id >= from.pieces.size();
    if (is_new || from.pieces[id].type == PieceModel::user_defined) tokens.push_back(token);
  }
  model.added = AddedTokens(std::move(tokens));
}

TextModel read_sentencepiece(const std::string& what, const std::string& path,
                             const std::vector<AddedToken>& added) {
  const File file(what, path);
  if (file.size() == 0 || file.size() > kLargestModel) {
    fail(what, ": ", path, " has ", file.size(), " bytes, expected 1 to ", kLargestModel);
  }
  const std::string source = concat(what, ": ", path);
  PieceModel from = read_piece_model(source, file.text());
  TextModel model;
  std::vector<DoubleArray::Entry> kept;
  for (size_t id = 0; id < from.pieces.size(); ++id) {
    set_token(source, model, from.pieces[id].text, static_cast<int64_t>(id));
    model.special[id] = from.pieces[id].type == PieceModel::control;
    if (from.pieces[id].type != PieceModel::user_defined) continue;
    kept.emplace_back(from.pieces[id].text, static_cast<int32_t>(id));
  }
  from.normalization.kept = DoubleArray(std::move(kept));
  add_tokens(source, from, added, model);
  model.texts.following = model.tokens;
  model.texts.is_byte.resize(model.tokens.size());
  model.texts.broken = PieceTexts::Broken::byte;
  const PieceNormalization& rules = from.normalization;
  model.texts.spaces_removed = rules.adds_space || rules.removes_spaces ? 1 : 0;
  for (size_t id = 0; id < from.pieces.size(); ++id) set_piece_text(source, from, id, model);
  from.kind == PieceModel::bpe ? add_bpe(source, from, model) : add_unigram(source, from, model);
  model.normalizer.add({[pieces = PieceNormalizer(std::move(from.normalization))](
                            std::string_view text, size_t) { return pieces.apply(text); }});
  return model;
}

}  // namespace weft::text
