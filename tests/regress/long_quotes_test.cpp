// Seen: a value of a megabyte in a configuration or a model's file was repeated whole in the error, which hid
// what was wrong and where. Wanted: a message quotes 200 bytes of a long text.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ingot/config/config_toml.h"
#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/core/visible_text.h"
#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/formats/hf_config.h"
#include "ingot/formats/jsonl.h"
#include "ingot/formats/manifest.h"
#include "ingot/formats/safetensors.h"
#include "ingot/formats/safetensors_set.h"
#include "ingot/formats/tiktoken.h"
#include "ingot/plan/hardware.h"
#include "ingot/sweep/vary.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kLongestMessage = 1500;  // several quoted texts and the words around them

// Characters of two bytes, and control characters between them.
std::string long_quote(size_t bytes = 1U << 20) {
  std::string text;
  while (text.size() < bytes) text += text.size() % 97 == 0 ? "\x1b" : "\u00e9";
  return text;
}

int long_quote_refusals = 0;

template <typename F>
void expect_short_message(const std::string& what, F&& f) {
  try {
    f();
  } catch (const Error& error) {
    ++long_quote_refusals;
    const std::string shown = visible_text(error.what());
    EXPECT_LE(shown.size(), kLongestMessage) << what << ": " << shown.substr(0, 300);
  }
}

// Calls `parse` with the document in which each key and each value in turn is long.
template <typename F>
void for_each_long(const Json& document, const F& parse) {
  const Json flat = document.flatten();
  const std::string text = long_quote(20'000);
  for (const auto& [pointer, value] : flat.items()) {
    Json changed = document;
    changed[Json::json_pointer(pointer)] = text;
    expect_short_message(pointer,
                         [&] { parse(changed.dump(-1, ' ', false, Json::error_handler_t::replace)); });
    const Json::json_pointer at(pointer);
    Json& parent = (changed = document)[at.parent_pointer()];
    if (!parent.is_object()) continue;
    parent[text] = value;
    expect_short_message(pointer + " as a key", [&] { parse(changed.dump()); });
  }
}

fs::path long_quotes_corpus(const std::string& name) {
  return fs::path(INGOT_SOURCE_DIR) / "tests/fuzz/corpus" / name;
}

template <typename F>
void for_each_corpus_file(const std::string& corpus, const F& parse) {
  for (const auto& entry : fs::directory_iterator(long_quotes_corpus(corpus))) {
    const Json document = Json::parse(read_file(entry.path()), nullptr, false);
    if (document.is_object()) for_each_long(document, parse);
  }
}

TEST(LongQuotes, OfJsonAreCut) {
  long_quote_refusals = 0;
  for_each_corpus_file("fuzz_hf_config",
                       [](const std::string& text) { parse_hf_config(text, "config.json"); });
  EXPECT_GT(long_quote_refusals, 50);
  for_each_corpus_file("fuzz_tokenizer_json",
                       [](const std::string& text) { parse_tokenizer(text, "tokenizer.json"); });
  for_each_corpus_file("fuzz_manifest",
                       [](const std::string& text) { parse_manifest(text, "MANIFEST.json"); });
  for_each_corpus_file("fuzz_safetensors_index",
                       [](const std::string& text) { parse_safetensors_index(text, "index.json"); });
  EXPECT_GT(long_quote_refusals, 80);
  for (const std::string& text :
       {long_quote(), "{\"" + long_quote() + "\": 1", "{\"a\": \"" + long_quote()}) {
    expect_short_message("config.json", [&] { parse_hf_config(text, "config.json"); });
    expect_short_message("a line", [&] { parse_jsonl_line(text, "text", "a.jsonl", 1); });
    expect_short_message("tiktoken", [&] { read_tiktoken(text, "a.tiktoken"); });
  }
  expect_short_message("the key", [&] { parse_jsonl_line("{\"a\": 1}", long_quote(), "a.jsonl", 1); });
}

TEST(LongQuotes, OfSafetensorsAreCut) {
  long_quote_refusals = 0;
  const Json header = {{"w", {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4}}}}};
  for_each_long(header, [](std::string text) {
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t size = text.size();
    text.insert(0, reinterpret_cast<const char*>(&size), sizeof size);
    text += std::string(4, '\0');
    const SafetensorsFile file(std::as_bytes(std::span(text)), "model.safetensors");
    file.get(long_quote());
  });
  EXPECT_GE(long_quote_refusals, 5);
}

TEST(LongQuotes, OfConfigurationsAreCut) {
  long_quote_refusals = 0;
  const std::string text = long_quote();
  for (const std::string& assignment :
       {text, text + "=1", "model." + text + "=1", "model.layers=" + text, "train.device=" + text,
        "optimizer.lr=" + text, "train.max_time=" + text, "data.train=[" + text,
        "optimizer.group=[{kind='" + text + "'}]", "optimizer.group=[{" + text + "=1}]",
        "scaling.rule=" + text, "model.window=" + text})
    expect_short_message(assignment.substr(0, 30), [&] {
      ConfigBuilder builder;
      builder.add_override(assignment);
      (void)builder.config();
    });
  EXPECT_GE(long_quote_refusals, 10);
  for (const std::string& file :
       {text, text + " = 1\n", "[" + text + "]\na = 1\n", "[\"" + text + "\"]\na = 1\n",
        "preset = \"" + text + "\"\n", "[model]\nlayers = \"" + text + "\"\n",
        "[train]\ndevice = \"" + text + "\"\n", "[model]\n\"" + text + "\" = 1\n"}) {
    expect_short_message("toml " + file.substr(0, 30), [&] { ConfigBuilder().add_toml(file, "run.toml"); });
    expect_short_message("hardware " + file.substr(0, 30), [&] { parse_hardware(file, "gpu.toml"); });
  }
  for (const std::string& vary : {text, text + "=1", "optimizer.lr=" + text, "optimizer.lr=1:2:" + text})
    expect_short_message("vary", [&] { parse_vary(vary); });
}

// Returns the message of an error that quotes the text.
std::string message_with(const std::string& text) {
  try {
    fail(ErrorKind::kData, "{}: {} of {}", text, 5, "short");
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(LongQuotes, KeepTheBeginAndTheEnd) {
  EXPECT_EQ(message_with("/data/" + std::string(1300, 'x') + "/model.safetensors"),
            "/data/" + std::string(134, 'x') + " [... 1124 bytes ...] " + std::string(42, 'x') +
                "/model.safetensors: 5 of short");
  for (int before = 0; before < 3; ++before) {
    std::string text(static_cast<size_t>(before), 'x');
    for (int i = 0; i < 400; ++i) text += "\u20ac";
    const std::string message = message_with(text);
    EXPECT_EQ(message, visible_text(message)) << "a character is cut";
  }
  const std::string longest(1000, 'x');
  EXPECT_EQ(message_with(longest), longest + ": 5 of short");
}

}  // namespace
}  // namespace ingot
