#include "ingot/formats/tokenizer/pipeline_read.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

namespace ingot {
namespace {

constexpr std::string_view kMetaspaceMarker = "\u2581";

constexpr size_t kMaxSteps = 64;
constexpr size_t kMaxContentBytes = 256;  // of what a step writes into the text

std::string read_content(const JsonNode& node) {
  if (node.text().size() > kMaxContentBytes) node.refuse(fmt::format("at most {} bytes", kMaxContentBytes));
  return node.text();
}

std::string read_character(const JsonNode& node) {
  const auto is_lead = [](char c) { return (static_cast<uint8_t>(c) & 0xC0u) != 0x80u; };
  if (std::count_if(node.text().begin(), node.text().end(), is_lead) != 1) node.refuse("one character");
  return node.text();
}

template <typename Step>
void require_few(const std::vector<Step>& steps, const JsonNode& node) {
  if (steps.size() > kMaxSteps) node.refuse(fmt::format("at most {} steps", kMaxSteps));
}

uint32_t read_count(const JsonNode& node) { return node.exists() ? node.id(1 << 16) : 0; }

// A pattern is {"String": ...} or {"Regex": ...}.
std::string read_string_pattern(const JsonNode& node) {
  if (node["Regex"].exists()) node["Regex"].refuse("a String pattern (a Regex is supported in a Split only)");
  const std::string pattern = node["String"].text();
  if (pattern.empty()) node["String"].refuse("a pattern that is not empty");
  return pattern;
}

std::string read_marker(const JsonNode& node) {
  return node.exists() ? read_character(node) : std::string(kMetaspaceMarker);
}

// The old spelling has add_prefix_space; the new one has prepend_scheme, which counts if both are there.
PrependScheme read_prepend_scheme(const JsonNode& node) {
  const JsonNode scheme = node["prepend_scheme"];
  if (!scheme.is_set())
    return node["add_prefix_space"].flag(true) ? PrependScheme::kAlways : PrependScheme::kNever;
  if (scheme.is_text("always")) return PrependScheme::kAlways;
  if (scheme.is_text("first")) return PrependScheme::kFirst;
  if (!scheme.is_text("never")) scheme.refuse("always, first or never");
  return PrependScheme::kNever;
}

PreTokenizerStep::Behavior read_behavior(const JsonNode& node) {
  using Behavior = PreTokenizerStep::Behavior;
  if (node.is_text("Isolated")) return Behavior::kIsolated;
  if (node.is_text("Removed")) return Behavior::kRemoved;
  if (node.is_text("MergedWithPrevious")) return Behavior::kMergedWithPrevious;
  if (node.is_text("MergedWithNext")) return Behavior::kMergedWithNext;
  if (!node.is_text("Contiguous"))
    node.refuse("Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
  return Behavior::kContiguous;
}

void append_normalizer(const JsonNode& node, std::vector<NormalizerStep>& steps) {
  using Type = NormalizerStep::Type;
  const JsonNode type = node["type"];
  NormalizerStep step;
  if (type.is_text("Sequence")) {
    const JsonNode list = node["normalizers"];
    for (size_t i = 0; i < list.size(); ++i) append_normalizer(list.item(i), steps);
    return;
  }
  if (type.is_text("NFC")) {
    step.type = Type::kNfc;
  } else if (type.is_text("NFD")) {
    step.type = Type::kNfd;
  } else if (type.is_text("NFKC")) {
    step.type = Type::kNfkc;
  } else if (type.is_text("NFKD")) {
    step.type = Type::kNfkd;
  } else if (type.is_text("Lowercase")) {
    step.type = Type::kLowercase;
  } else if (type.is_text("Strip")) {
    step.type = Type::kStrip;
    step.strips_left = node["strip_left"].flag(true);
    step.strips_right = node["strip_right"].flag(true);
  } else if (type.is_text("Prepend")) {
    step.type = Type::kPrepend;
    step.content = read_content(node["prepend"]);
  } else if (type.is_text("Replace")) {
    step.type = Type::kReplace;
    step.pattern = read_string_pattern(node["pattern"]);
    step.content = read_content(node["content"]);
  } else {
    type.refuse("NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace or Sequence");
  }
  steps.push_back(std::move(step));
  require_few(steps, node);
}

void read_split(const JsonNode& node, PreTokenizerStep& step) {
  const JsonNode pattern = node["pattern"];
  step.is_regex = pattern["Regex"].exists();
  step.pattern = step.is_regex ? pattern["Regex"].text() : read_string_pattern(pattern);
  step.behavior = read_behavior(node["behavior"]);
  step.inverts = node["invert"].flag(false);
}

void append_pre_tokenizer(const JsonNode& node, std::vector<PreTokenizerStep>& steps) {
  using Type = PreTokenizerStep::Type;
  const JsonNode type = node["type"];
  PreTokenizerStep step;
  bool is_byte_level = false;
  for (const PreTokenizerStep& before : steps) is_byte_level |= before.type == Type::kByteLevel;
  if (type.is_text("Sequence")) {
    const JsonNode list = node["pretokenizers"];
    for (size_t i = 0; i < list.size(); ++i) append_pre_tokenizer(list.item(i), steps);
    return;
  }
  if (type.is_text("Split")) {
    step.type = Type::kSplit;
    read_split(node, step);
  } else if (type.is_text("Digits")) {
    step.type = Type::kDigits;
    step.isolates_digits = node["individual_digits"].flag(false);
  } else if (type.is_text("Punctuation")) {
    step.type = Type::kPunctuation;
    if (node["behavior"].exists()) step.behavior = read_behavior(node["behavior"]);
  } else if (type.is_text("Whitespace")) {
    step.type = Type::kWhitespace;
  } else if (type.is_text("WhitespaceSplit")) {
    step.type = Type::kWhitespaceSplit;
  } else if (is_byte_level && (type.is_text("Metaspace") || type.is_text("ByteLevel"))) {
    type.refuse("neither Metaspace nor ByteLevel after ByteLevel");
  } else if (type.is_text("Metaspace")) {
    step.type = Type::kMetaspace;
    step.marker = read_marker(node["replacement"]);
    step.prepend = read_prepend_scheme(node);
    step.splits = node["split"].flag(true);
  } else if (type.is_text("ByteLevel")) {
    step.type = Type::kByteLevel;
    step.prepend = node["add_prefix_space"].flag(true) ? PrependScheme::kAlways : PrependScheme::kNever;
    step.splits = node["use_regex"].flag(true);
  } else {
    type.refuse("Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace, ByteLevel or Sequence");
  }
  steps.push_back(std::move(step));
  require_few(steps, node);
}

void append_decoder(const JsonNode& node, std::vector<DecoderStep>& steps) {
  using Type = DecoderStep::Type;
  const JsonNode type = node["type"];
  DecoderStep step;
  if (type.is_text("Sequence")) {
    const JsonNode list = node["decoders"];
    for (size_t i = 0; i < list.size(); ++i) append_decoder(list.item(i), steps);
    return;
  }
  bool is_fused = false;
  for (const DecoderStep& before : steps) is_fused |= before.type == Type::kFuse;
  if (type.is_text("ByteLevel")) {
    step.type = Type::kByteLevel;
  } else if (type.is_text("ByteFallback")) {
    step.type = Type::kByteFallback;
  } else if (type.is_text("Fuse")) {
    step.type = Type::kFuse;
  } else if (type.is_text("Strip")) {
    step.type = Type::kStrip;
    step.pattern = read_character(node["content"]);
    step.start = read_count(node["start"]);
    step.stop = read_count(node["stop"]);
  } else if (type.is_text("Replace")) {
    step.type = Type::kReplace;
    step.pattern = read_string_pattern(node["pattern"]);
    step.content = read_content(node["content"]);
  } else if (type.is_text("Metaspace")) {
    step.type = Type::kMetaspace;
    step.pattern = read_marker(node["replacement"]);
    step.drops_first = read_prepend_scheme(node) != PrependScheme::kNever;
  } else {
    type.refuse("ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace or Sequence");
  }
  if (is_fused && step.type != Type::kStrip && step.type != Type::kFuse)
    node.refuse("nothing but Strip after Fuse");
  steps.push_back(std::move(step));
  require_few(steps, node);
}

}  // namespace

std::vector<NormalizerStep> read_normalizers(const JsonNode& node) {
  std::vector<NormalizerStep> steps;
  if (node.is_set()) append_normalizer(node, steps);
  return steps;
}

std::vector<PreTokenizerStep> read_pre_tokenizers(const JsonNode& node) {
  std::vector<PreTokenizerStep> steps;
  if (node.is_set()) append_pre_tokenizer(node, steps);
  return steps;
}

std::vector<DecoderStep> read_decoders(const JsonNode& node) {
  std::vector<DecoderStep> steps;
  if (node.is_set()) append_decoder(node, steps);
  return steps;
}

}  // namespace ingot
