#include "ingot/data/tokenizer/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "ingot/core/error.h"
#include "ingot/data/tokenizer/unicode.h"

namespace ingot {
namespace {

using Type = NormalizerStep::Type;

bool is_form(Type type) {
  return type == Type::kNfc || type == Type::kNfd || type == Type::kNfkc || type == Type::kNfkd;
}

// Returns true if the form leaves c as it is and nothing combines across the place before c. These are some
// of the characters for which that holds; the others take the long way.
bool is_inert(Type form, uint32_t c) {
  if (c < 0x80) return true;
  if (form == Type::kNfkc || form == Type::kNfkd)
    return (c >= 0x3400 && c <= 0x9FFF) || (form == Type::kNfkc && c >= 0xAC00 && c <= 0xD7A3);
  if ((c >= 0x3400 && c <= 0x9FFF) || (c >= 0x3041 && c <= 0x304A)) return true;
  if (form == Type::kNfd) return false;
  return c < 0x300 || (c >= 0x400 && c <= 0x482) || (c >= 0xAC00 && c <= 0xD7A3) ||
         (c >= 0x3001 && c <= 0x3029) || (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A0 && c <= 0x30FF) ||
         (c >= 0x2010 && c <= 0x2027) || (c >= 0x1F300 && c <= 0x1F6FF);
}

// Appends the form of valid UTF-8.
void append_form(Type form, std::string_view text, std::string& out) {
  int options = UTF8PROC_STABLE;
  options |= form == Type::kNfc || form == Type::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == Type::kNfkc || form == Type::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t length_bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                     static_cast<utf8proc_ssize_t>(text.size()), &result,
                                                     static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (length_bytes < 0)
    fail(ErrorKind::kMemory, "normalizer: {} bytes of text: {}", text.size(), utf8proc_errmsg(length_bytes));
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(length_bytes));
}

// Copies inert text, and passes on only the stretches with other characters. Such a stretch begins with the
// inert character before it, with which a mark may combine, and ends before the next inert one.
void normalize_form(Type form, std::string_view text, std::string& out) {
  size_t copied = 0;      // text before this offset is in `out`
  size_t last_inert = 0;  // begin of the character before i, if that is inert
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text, i);
    if (!c.is_valid() || is_inert(form, c.value)) {
      last_inert = c.is_valid() ? i : i + 1;
      i += c.length_bytes;
      continue;
    }
    const size_t begin = last_inert;
    size_t end = i + c.length_bytes;
    while (end < text.size()) {
      const CodePoint next = decode_utf8(text, end);
      if (!next.is_valid() || is_inert(form, next.value)) break;
      end += next.length_bytes;
    }
    out.append(text, copied, begin - copied);
    append_form(form, text.substr(begin, end - begin), out);
    copied = last_inert = i = end;
  }
  out.append(text, copied);
}

void lowercase(std::string_view text, std::string& out) {
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text, i);
    if (!c.is_valid()) {
      out.push_back(text[i]);
    } else if (c.value == 0x130) {  // the only character whose lower case has two
      out += "i\u0307";
    } else {
      append_utf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))), out);
    }
    i += c.length_bytes;
  }
}

bool is_white(CodePoint c) { return c.is_valid() && char_class(c.value) == CharClass::kSpace; }

std::string_view strip(std::string_view text, const NormalizerStep& step) {
  while (step.strips_left && !text.empty() && is_white(decode_utf8(text, 0)))
    text.remove_prefix(decode_utf8(text, 0).length_bytes);
  while (step.strips_right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0u) == 0x80u)
      --begin;
    const CodePoint last = decode_utf8(text, begin);
    if (!is_white(last) || begin + last.length_bytes != text.size()) break;
    text.remove_suffix(last.length_bytes);
  }
  return text;
}

// The longest that a text may become: no Unicode form makes more than 11 bytes of one.
size_t max_normalized_bytes(size_t text_bytes) { return 64 * text_bytes + 4096; }

void require_length(const std::string& out, size_t limit_bytes) {
  if (out.size() > limit_bytes)
    fail(ErrorKind::kData,
         "normalizer: the text becomes more than 64 times as long; shorten the Replace contents");
}

void replace_all(std::string_view text, const NormalizerStep& step, size_t limit_bytes, std::string& out) {
  for (size_t i = 0; i < text.size();) {
    const size_t found = std::min(text.find(step.pattern, i), text.size());
    out.append(text, i, found - i);
    if (found == text.size()) break;
    out += step.content;
    require_length(out, limit_bytes);
    i = found + step.pattern.size();
  }
}

// Returns false if the step leaves the text as it is, which is the usual case.
bool changes(const NormalizerStep& step, std::string_view text) {
  if (step.type == Type::kReplace) return text.find(step.pattern) != text.npos;
  if (!is_form(step.type)) return true;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text, i);
    if (c.is_valid() && !is_inert(step.type, c.value)) return true;
    i += c.length_bytes;
  }
  return false;
}

}  // namespace

bool Normalizer::prepends() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const NormalizerStep& step) { return step.type == Type::kPrepend; });
}

std::string_view Normalizer::apply(std::string_view text, bool is_first_chunk, std::string& storage) const {
  const size_t limit_bytes = max_normalized_bytes(text.size());
  for (const NormalizerStep& step : steps_) {
    if (step.type == Type::kPrepend && (!is_first_chunk || text.empty())) continue;
    if (step.type == Type::kStrip) {
      text = strip(text, step);
      continue;
    }
    if (!changes(step, text)) continue;
    std::string next;
    next.reserve(text.size() + text.size() / 2 + step.content.size());
    if (step.type == Type::kPrepend) {
      next.append(step.content).append(text);
    } else if (step.type == Type::kReplace) {
      replace_all(text, step, limit_bytes, next);
    } else if (step.type == Type::kLowercase) {
      lowercase(text, next);
    } else {
      normalize_form(step.type, text, next);
    }
    require_length(next, limit_bytes);
    storage = std::move(next);
    text = storage;
  }
  return text;
}

bool Normalizer::is_local(std::string_view marker) const {
  bool is_replaced = false;  // a later step might change the marker
  for (const NormalizerStep& step : steps_) {
    if (step.type == Type::kPrepend) continue;
    if (step.type == Type::kStrip || is_replaced) return false;
    if (step.type != Type::kReplace) continue;
    if (step.pattern != " " || step.content != marker) return false;
    is_replaced = true;
  }
  return true;
}

}  // namespace ingot
