#include "ingot/run/data/run_data.h"

#include <malloc.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>

#include "ingot/data/builtin_corpus.h"
#include "ingot/data/corpus_stream.h"
#include "ingot/data/dataset_folder.h"
#include "ingot/data/document_stats.h"
#include "ingot/data/token_source_shards.h"
#include "ingot/data/token_source_text.h"
#include "ingot/run/data/load_stream.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

BpeTrainConfig bpe_config_of(const DataConfig& config) {
  BpeTrainConfig bpe;
  bpe.vocab_size = config.tokenizer_vocab;
  bpe.pattern = config.tokenizer_pattern;
  return bpe;
}

// The parts of the data to load: training and validation data, or training data alone.
enum class Val { kWanted, kNone };

// Names as in llm.c and modded-nanogpt distinguish the splits: NAME_train_000001.bin, NAME_val_000000.bin.
bool is_val_name(const fs::path& path) {
  const std::string name = fmt::format("_{}_", path.stem().string());
  return name.find("_val_") != std::string::npos;
}

bool is_trained_on_text(const std::string& tokenizer) { return tokenizer == "bpe" || tokenizer == "char"; }

std::unique_ptr<Tokenizer> named_tokenizer(const std::string& name) {
  return name == "byte" ? make_byte_tokenizer() : load_tokenizer(name);
}

// Returns the folder of the first shard, which may also hold the tokenizer.
fs::path folder_of_shards(const std::vector<std::string>& specs) {
  const std::string first = shard_files(specs).front();
  return fs::path(first.substr(first.starts_with("nanogpt:") ? 8 : 0)).parent_path();
}

// Loads the tokenizer of shards that are not a prepared folder. One error message names everything that is
// missing.
std::unique_ptr<Tokenizer> shard_tokenizer(const DataConfig& config,
                                           const std::optional<std::string>& tokenizer_json, bool has_val) {
  const std::string need_val =
      "a validation part (data.val, files named like NAME_val_000000.bin, or a data.val_fraction above 0)";
  const bool is_known = tokenizer_json || !is_trained_on_text(config.tokenizer);
  const fs::path beside = folder_of_shards(config.train) / kDatasetTokenizerName;
  std::error_code ignored;
  if (!is_known && !fs::exists(beside, ignored) && fs::exists(beside.parent_path() / "meta.pkl", ignored))
    fail(ErrorKind::kUsage,
         "{}: meta.pkl beside the shards holds nanoGPT's table of characters, but it is a pickle, which "
         "Ingot does not "
         "run; train on the text itself with data.tokenizer=char, or name a tokenizer with --set "
         "data.tokenizer=FILE",
         config.train.front());
  if (!is_known && !fs::is_regular_file(beside, ignored))
    fail(ErrorKind::kUsage,
         "{}: token shards hold ids only; training also needs the tokenizer that made them (--set "
         "data.tokenizer=FILE, or a tokenizer.json beside the shards){}. If you have the text, `ingot data "
         "prepare "
         "--tokenizer bpe --data TEXT --out DIR` makes a folder with everything in it, for --data DIR",
         config.train.front(), has_val ? "" : " and " + need_val);
  if (!has_val) fail(ErrorKind::kUsage, "{}: training also needs {}", config.train.front(), need_val);
  if (tokenizer_json) return parse_tokenizer(*tokenizer_json, "tokenizer.json");
  return is_known ? named_tokenizer(config.tokenizer) : load_tokenizer(beside);
}

std::string leak_warning(int64_t shared, int64_t documents) {
  if (shared * 100 < documents || shared == 0) return "";
  return fmt::format(
      "{} of {} validation documents are also in the training text, so the validation loss is lower than on "
      "text that "
      "the model has not seen; remove duplicates, or give other text as data.val",
      shared, documents);
}

// As leak_warning for two streams whose documents are compared here; "" for long ones, which would take
// seconds.
std::string leak_between(const TokenSource& train, const TokenSource& val) {
  constexpr int64_t kMaxTokens = int64_t{1} << 27;
  constexpr size_t kMaxHashes = size_t{1} << 16;
  if (train.tokens() > kMaxTokens || val.tokens() > kMaxTokens) return "";
  const DocumentStats documents = token_stats(val, nullptr, 0, kMaxHashes);
  return leak_warning(documents.also_in(token_stats(train, nullptr, 0, kMaxHashes)).documents,
                      documents.documents());
}

RunData load_shards(const DataConfig& config, const std::optional<std::string>& tokenizer_json, Val which,
                    const CorpusProgress& progress) {
  std::vector<std::string> train = config.train, val = config.val;
  if (val.empty()) {
    train.clear();
    for (const std::string& file : shard_files(config.train))
      (is_val_name(file) ? val : train).push_back(file);
  }
  if (train.empty())
    fail(ErrorKind::kUsage,
         "data.train: all of its shards are named as validation ({} and others); name others too",
         val.front());
  RunData data;
  const bool has_val = which == Val::kNone || !val.empty() || config.val_fraction > 0;
  data.tokenizer = shard_tokenizer(config, tokenizer_json, has_val);
  data.tokenizer->set_finds_special(config.finds_special);
  const std::optional<TokenId> end_of_text = data.tokenizer->end_of_text();
  if (which == Val::kNone) {
    data.train = open_shards(train, end_of_text);
  } else if (val.empty()) {
    TokenSplit parts = split_shards(train, end_of_text, config.val_fraction);
    data.train = std::move(parts.train);
    data.val = std::move(parts.val);
    data.val.set_text_bytes(count_text_bytes(data.val, *data.tokenizer));
  } else {
    data.train = open_shards(train, end_of_text);
    data.val = load_stream(val, config.text_field, *data.tokenizer, progress);
  }
  data.warning = leak_between(data.train, data.val);
  return data;
}

void check_tokenizer(const DataConfig& config, const std::optional<std::string>& tokenizer_json,
                     const fs::path& folder, const Tokenizer& tokenizer) {
  if (tokenizer_json && !are_equal(*parse_tokenizer(*tokenizer_json, "tokenizer.json"), tokenizer))
    fail(ErrorKind::kData,
         "{}: was prepared with another tokenizer than this run's; give the folder that the run began with",
         folder.string());
  if (!tokenizer_json && !is_trained_on_text(config.tokenizer) &&
      !are_equal(*named_tokenizer(config.tokenizer), tokenizer))
    fail(ErrorKind::kUsage,
         "data.tokenizer: \"{}\" is not the tokenizer that {} was prepared with; leave data.tokenizer out, "
         "the "
         "folder brings its own",
         config.tokenizer, folder.string());
}

// Returns the text of a short stream, for comparison with compressors; empty if the stream is longer.
Documents decoded(const TokenSource& source, const Tokenizer& tokenizer) {
  Documents documents;
  if (source.text_bytes().value_or(INT64_MAX) > kYardstickBytes) return documents;
  std::vector<uint32_t> ids(static_cast<size_t>(source.tokens()));
  source.read(0, ids);
  std::string text;
  for (const uint32_t id : ids)
    if (id != tokenizer.end_of_text()) tokenizer.append_bytes(id, text);
  documents.add("validation", std::move(text));
  return documents;
}

RunData load_prepared(const DataConfig& config, const std::optional<std::string>& tokenizer_json,
                      const fs::path& folder, Val which, const CorpusProgress& progress) {
  const Dataset dataset = read_dataset(folder);
  RunData data;
  data.tokenizer = open_dataset_tokenizer(folder, dataset);
  data.tokenizer->set_finds_special(config.finds_special);
  check_tokenizer(config, tokenizer_json, folder, *data.tokenizer);
  data.train = open_dataset_part(folder, dataset.train, *data.tokenizer);
  if (which == Val::kNone) return data;
  if (!config.val.empty()) {
    data.val = load_stream(config.val, config.text_field, *data.tokenizer, progress);
  } else if (dataset.val.tokens > 0) {
    data.val = open_dataset_part(folder, dataset.val, *data.tokenizer);
    data.val_documents = decoded(data.val, *data.tokenizer);
    if (dataset.val.also_in_train >= 0) {
      data.warning = leak_warning(dataset.val.also_in_train, dataset.val.documents);
      return data;
    }
  } else {
    if (config.val_fraction == 0)
      fail(ErrorKind::kUsage, "{}: has no validation part; set data.val or a data.val_fraction above 0",
           folder.string());
    std::vector<std::string> shards;
    for (const std::string& name : dataset.train.files) shards.push_back((folder / name).string());
    TokenSplit parts = split_shards(shards, data.tokenizer->end_of_text(), config.val_fraction);
    data.train = std::move(parts.train);
    data.val = std::move(parts.val);
    data.val.set_text_bytes(count_text_bytes(data.val, *data.tokenizer));
  }
  data.warning = leak_between(data.train, data.val);
  return data;
}

RunData load_text(const DataConfig& config, const std::optional<std::string>& tokenizer_json, Val which,
                  const CorpusProgress& progress) {
  const bool has_own_val = which == Val::kWanted && !config.val.empty();
  const double fraction = has_own_val || which == Val::kNone ? 0 : config.val_fraction;
  const StreamedCorpus::Progress reading = in_phase(progress, "reading"),
                                 tokenizing = in_phase(progress, "tokenizing");
  const StreamedCorpus train(config.train, fraction, config.text_field, reading);
  std::optional<StreamedCorpus> val;
  if (has_own_val) val.emplace(config.val, 0, config.text_field, reading);
  RunData data;
  if (tokenizer_json) {
    data.tokenizer = parse_tokenizer(*tokenizer_json, "tokenizer.json");
  } else if (is_corpus_tokenizer(config.tokenizer)) {
    std::vector<const StreamedCorpus*> corpora = {&train};
    if (val && config.tokenizer == "char") corpora.push_back(&*val);
    data.tokenizer = make_corpus_tokenizer(config.tokenizer, bpe_config_of(config), corpora, progress);
  } else {
    data.tokenizer = load_tokenizer(config.tokenizer);
  }
  data.tokenizer->set_finds_special(config.finds_special);
  StreamedSplit text = tokenize(train, *data.tokenizer, {.val_bytes = kYardstickBytes}, tokenizing);
  if (val) text.val = tokenize(*val, *data.tokenizer, {.train_bytes = kYardstickBytes}, tokenizing).train;
  if (text.val.documents == 0 && which == Val::kWanted)
    fail(ErrorKind::kUsage, "data: there is no validation text; set data.val or a data.val_fraction above 0");
  data.train = std::move(text.train.tokens);
  data.val = std::move(text.val.tokens);
  data.val_documents = std::move(text.val.text);
  data.warning = leak_between(data.train, data.val);
  return data;
}

ChatFormat chat_format(const DataConfig& config, const Tokenizer& tokenizer, const ChatSetup& setup) {
  return {.tokenizer = tokenizer,
          .template_name = config.chat_template,
          .source = config.tokenizer,
          .loss_on = config.loss_on,
          .context = setup.context};
}

RunData load_chats(const DataConfig& config, const std::optional<std::string>& tokenizer_json,
                   const ChatSetup& setup, Val which, const CorpusProgress& progress) {
  if (!config.has_document_mask)
    fail(ErrorKind::kUsage,
         "{}: is chat data, which needs data.document_mask = true, so that no conversation sees another; set "
         "it, "
         "or train with the preset sft",
         config.train.front());
  if (!tokenizer_json && is_trained_on_text(config.tokenizer))
    fail(ErrorKind::kUsage,
         "{}: is chat data, which need the tokenizer of a model; start from a model with --init FOLDER, or "
         "name "
         "a tokenizer with data.tokenizer",
         config.train.front());
  RunData data;
  data.tokenizer =
      tokenizer_json ? parse_tokenizer(*tokenizer_json, "tokenizer.json") : named_tokenizer(config.tokenizer);
  if (tokenizer_json) data.tokenizer->set_side_files(setup.side);
  data.tokenizer->set_finds_special(config.finds_special);
  const ChatFormat format = chat_format(config, *data.tokenizer, setup);
  const int64_t vocab_size = data.tokenizer->vocab_size();
  Chats train = read_chats(config.train, format, in_phase(progress, "tokenizing"));
  if (which == Val::kWanted && (config.val.empty() || names_chat(config.val, config.text_field))) {
    const Chats val =
        config.val.empty() ? split_off_chats(train, config.val_fraction) : read_chats(config.val, format);
    data.warning = leak_warning(conversations_also_in(val, train), std::ssize(val.conversations));
    data.val = pack(val.conversations, setup.context, vocab_size);
  } else if (which == Val::kWanted) {
    data.val = load_stream(config.val, config.text_field, *data.tokenizer, progress);
  }
  data.train = pack(train.conversations, setup.context, vocab_size);
  data.chats = summary_of(train, (data.train.tokens() - 1) / setup.context, setup.context);
  return data;
}

// Returns to the system what reading the text and training a tokenizer have freed; training would keep it
// otherwise.
void release_free_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

std::string megabytes(const TokenSource& source) {
  return source.text_bytes() ? fmt::format("{:.1f} MB, ", static_cast<double>(*source.text_bytes()) * 1e-6)
                             : "";
}

RunData load_one(const DataConfig& config, const std::optional<std::string>& tokenizer_json,
                 const CorpusProgress& progress, const ChatSetup& chat, Val which = Val::kWanted) {
  if (const std::optional<fs::path> folder = prepared_folder(config.train))
    return load_prepared(config, tokenizer_json, *folder, which, progress);
  if (names_shards(config.train)) return load_shards(config, tokenizer_json, which, progress);
  return names_chat(config.train, config.text_field)
             ? load_chats(config, tokenizer_json, chat, which, progress)
             : load_text(config, tokenizer_json, which, progress);
}

// Returns the configuration of one source of a mixture.
DataConfig source_config(const DataConfig& config, const std::string& name) {
  DataConfig one = config;
  one.train = {name};
  one.mix.clear();
  return one;
}

// Returns the tokenizer of a mixture: the one that the run names or that a source of tokens brings, else one
// that is trained on the text of all sources.
std::unique_ptr<Tokenizer> mix_tokenizer(const DataConfig& config, const CorpusProgress& progress) {
  if (!is_trained_on_text(config.tokenizer)) return named_tokenizer(config.tokenizer);
  std::vector<StreamedCorpus> corpora;
  corpora.reserve(config.train.size() + 1);
  for (const std::string& name : config.train) {
    const std::vector<std::string> specs{name};
    if (const std::optional<fs::path> folder = prepared_folder(specs))
      return open_dataset_tokenizer(*folder, read_dataset(*folder));
    if (names_shards(specs)) return shard_tokenizer(source_config(config, name), std::nullopt, true);
    corpora.emplace_back(specs, config.val.empty() ? config.val_fraction : 0, config.text_field,
                         in_phase(progress, "reading"));
  }
  if (!config.val.empty() && config.tokenizer == "char")
    corpora.emplace_back(config.val, 0, config.text_field, in_phase(progress, "reading"));
  std::vector<const StreamedCorpus*> texts;
  for (const StreamedCorpus& corpus : corpora) texts.push_back(&corpus);
  return make_corpus_tokenizer(config.tokenizer, bpe_config_of(config), texts, progress);
}

// Returns the name of a source, with a number if an earlier one has the same.
std::string source_name(const std::vector<MixSource>& before, const std::string& name) {
  const auto same = std::ranges::count_if(before, [&](const MixSource& source) {
    return source.name == name || source.name.starts_with(name + " (");
  });
  return same == 0 ? name : fmt::format("{} ({})", name, same + 1);
}

RunData load_mix(const DataConfig& config, const std::optional<std::string>& tokenizer_json,
                 const CorpusProgress& progress, const ChatSetup& chat) {
  RunData data;
  data.tokenizer =
      tokenizer_json ? parse_tokenizer(*tokenizer_json, "tokenizer.json") : mix_tokenizer(config, progress);
  const std::string json = data.tokenizer->to_json();
  const ChatSetup setup{.context = chat.context,
                        .side = tokenizer_json ? chat.side : data.tokenizer->side_files()};
  const MixOrder order(config.mix);
  for (size_t i = 0; i < config.train.size(); ++i) {
    // Validation data of its own is the whole mixture's, and is loaded with the first source.
    const bool has_own_val = !config.val.empty();
    RunData one = load_one(source_config(config, config.train[i]), json, progress, setup,
                           has_own_val && i > 0 ? Val::kNone : Val::kWanted);
    MixSource source{.name = source_name(data.mix, config.train[i]),
                     .weight = config.mix[i],
                     .share = order.share(static_cast<int64_t>(i)),
                     .train_tokens = one.train.tokens(),
                     .is_packed = one.train.is_masked()};
    data.train.add(one.train);
    if (!one.chats.empty()) data.chats += (data.chats.empty() ? "" : "; ") + source.name + ": " + one.chats;
    if (data.warning.empty() && !one.warning.empty()) data.warning = source.name + ": " + one.warning;
    if (!has_own_val) {
      source.val = one.val;
      data.val.add(one.val);
    } else if (i == 0) {
      data.val = std::move(one.val);
      data.val_documents = std::move(one.val_documents);
    }
    data.mix.push_back(std::move(source));
  }
  return data;
}

std::string mix_summary(const RunData& data) {
  std::string text;
  for (const MixSource& source : data.mix)
    text += fmt::format("; {:.4g} % {} ({} tokens)", 100 * source.share, source.name, source.train_tokens);
  return text;
}

}  // namespace

RunData load_run_data(const DataConfig& config, const std::optional<std::string>& tokenizer_json,
                      const CorpusProgress& progress, const ChatSetup& chat) {
  if (config.train.empty())
    fail(ErrorKind::kUsage,
         "data.train is empty; give text with --data FILE, or data.train = \"builtin:bible\"");
  RunData data = config.mix.empty() ? load_one(config, tokenizer_json, progress, chat)
                                    : load_mix(config, tokenizer_json, progress, chat);
  if (chat.has_pairs != (data.train.references() != nullptr))
    fail(ErrorKind::kData, "{}: {}", config.train.front(),
         chat.has_pairs
             ? "holds no pairs of answers (chosen, rejected), which dpo.beta needs; leave dpo.beta 0 "
               "for other data"
             : "holds pairs of answers (chosen, rejected), which train only with dpo.beta above 0; "
               "use the preset dpo");
  release_free_memory();
  const TokenSource::TokenBytes bytes = token_bytes(*data.tokenizer);
  data.val.set_token_bytes(bytes);
  for (MixSource& source : data.mix) source.val.set_token_bytes(bytes);
  data.tokenizer->set_finds_special(config.finds_special);
  const ChatFormat format = chat_format(config, *data.tokenizer, chat);
  for (const std::string& entry : config.val_sets) {
    const auto [name, path] = named_text(entry);
    data.sets.push_back({name, load_stream({path}, config.text_field, *data.tokenizer, progress, &format)});
  }
  data.summary =
      fmt::format("train {}{} tokens; validation {}{} tokens; vocabulary {}", megabytes(data.train),
                  data.train.tokens(), megabytes(data.val), data.val.tokens(), data.tokenizer->vocab_size()) +
      mix_summary(data) + (data.chats.empty() ? "" : "; " + data.chats);
  return data;
}

Sampler sampler_of(const RunConfig& config, const RunData& data) {
  std::vector<Sampler::Source> sources;
  for (const MixSource& source : data.mix) {
    if (source.train_tokens <= config.model.context)
      fail(ErrorKind::kData,
           "{} has {} tokens, and a window of model.context = {} needs {}; give more text, a shorter "
           "context, or leave it "
           "out of the mixture",
           source.name, source.train_tokens, config.model.context, config.model.context + 1);
    sources.push_back(
        {.tokens = source.train_tokens, .weight = source.weight, .is_packed = source.is_packed});
  }
  if (sources.empty())
    sources.push_back({.tokens = data.train.tokens(), .is_packed = data.train.is_masked()});
  return {config.data.order, config.train.seed, sources, config.model.context};
}

RunInputs hashes_of(const RunData& data) {
  const std::string tokenizer = data.tokenizer->to_json();
  return {.train_hash = data.train.content_hash(),
          .val_hash = data.val.content_hash(),
          .tokenizer_hash = XXH3_64bits(tokenizer.data(), tokenizer.size()),
          .train_tokens = data.train.tokens(),
          .val_tokens = data.val.tokens()};
}

}  // namespace ingot
