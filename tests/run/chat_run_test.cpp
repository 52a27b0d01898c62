// Runs on chat data: what they print, how they resume, evaluate, and refuse.
#include <gmock/gmock.h>

#include "ingot/data/tokenizer/tokenizer.h"
#include "ingot/run/chat_session.h"
#include "ingot/run/data/run_data.h"
#include "tests/reference/error_of.h"
#include "tests/run/chat_tokenizer.h"
#include "tests/run/training_fixture.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ChatRun : public TrainingTest {
 protected:
  fs::path chat = folder / "chat.jsonl";

  void SetUp() override {
    TrainingTest::SetUp();
    write_chat_tokenizer(folder / "model");
    std::string lines;
    const char* words[] = {"the cat", "a dog", "sat", "ran", "on a mat"};
    for (size_t i = 0; i < 60; ++i)
      lines += fmt::format(R"({{"instruction": "{} {}?", "input": "", "output": "{} {}."}})"
                           "\n",
                           words[i % 5], words[i / 5 % 5], words[i % 3], words[(i + i / 7) % 5]);
    write_file(chat, lines);
  }

  RunConfig chat_config() const {
    RunConfig c = config(DType::f32);
    c.model.context = 64;
    c.data.train = {chat.string()};
    c.data.tokenizer = (folder / "model").string();
    c.data.has_document_mask = true;
    c.data.order = SampleOrder::kEpochs;
    c.train.steps = 11;
    c.train.batch_size = 2;
    c.train.grad_accum = 1;
    c.eval.every = 0;
    c.checkpoint.every = 0;
    return c;
  }

  int refusals_ = 0;
  std::string refusal_of_run(const RunConfig& c) {
    return error_of([&] { train(c, folder / fmt::format("refused-{}", refusals_++)); });
  }
};

TEST_F(ChatRun, ResumesInTheMiddleOfAnEpochWithTheSameLosses) {
  RunConfig c = chat_config();
  const TrainOutcome whole = train(c, folder / "whole");
  EXPECT_THAT(said, HasSubstr("54 conversations in "));
  EXPECT_THAT(said, HasSubstr("% of their tokens are targets; 0 were cut at model.context, 0 left out"));
  c.train.stop_at = 4;
  train(c, folder / "parts");
  c.train.stop_at = 0;
  const TrainOutcome parts = train(c, folder / "parts", true);
  const auto want = steps_of(folder / "whole"), got = steps_of(folder / "parts");
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].number("loss"), want[i].number("loss")) << i;
    EXPECT_EQ(want[i].number("tokens"), 2.0 * 64 * static_cast<double>(i + 1));
    EXPECT_EQ(got[i].number("targets"), want[i].number("targets"));
    EXPECT_GT(*want[i].number("targets"), 0);
    EXPECT_LT(*want[i].number("targets"), 2.0 * 64 / 2) << "the assistant's words are less than half";
  }
  expect_equal_files(whole.checkpoint, parts.checkpoint);
  // The checkpoint has the template, so that the same file can be evaluated with it.
  const CheckpointEval eval = evaluate_checkpoint(whole.checkpoint, {.data = {chat.string()}});
  EXPECT_GT(eval.result.tokens, 100);
  EXPECT_EQ(eval.result.tokens, eval.result.text_tokens);
  EXPECT_EQ(eval.result.bits_per_byte, 0);
}

TEST_F(ChatRun, EpochsBecomeStepsOnceTheDataIsKnown) {
  RunConfig c = chat_config();
  const RunData data = load_run_data(c.data, std::nullopt, {}, {.context = 64});
  const int64_t windows = (data.train.tokens() - 1) / 64;
  ASSERT_GT(windows, 4);
  c.train.epochs = 1.5;
  c.train.stop_at = 2;
  c.optimizer.lr = 1e-3;
  const int64_t samples = (3 * windows + 1) / 2, steps = (samples + 1) / 2;
  train(c, folder / "epochs");
  EXPECT_THAT(said, HasSubstr(fmt::format("; 1.5 epochs are {} steps", steps)));
  EXPECT_THAT(read_file(folder / "epochs/config.toml"), HasSubstr(fmt::format("\nsteps = {}", steps)));
  // A resumed run, whose configuration is the one in the folder, has the same length.
  RunConfig resumed = c;
  resumed.train.epochs = 0;
  resumed.train.steps = steps;
  resumed.train.stop_at = 0;
  EXPECT_EQ(train(resumed, folder / "epochs", true).steps, steps);
  c.train.stop_at = 0;
  EXPECT_EQ(train(c, folder / "whole").steps, steps);
  EXPECT_EQ(steps_of(folder / "whole").back().number("loss"),
            steps_of(folder / "epochs").back().number("loss"));

  c.train.max_tokens = 1000;
  EXPECT_THAT(error_of([&] { c.validate(); }),
              HasSubstr("train.epochs = 1.5 and train.max_tokens are both set; unset one"));
  c.train.max_tokens = 0;
  c.schedule.warmup_steps = steps + 1;
  EXPECT_THAT(refusal_of_run(c), HasSubstr(fmt::format("the nearest valid value is {}", steps)));
}

TEST_F(ChatRun, ValidationIsChatDataOrText) {
  RunConfig c = chat_config();
  const ChatSetup setup{.context = 64};
  RunData data = load_run_data(c.data, std::nullopt, {}, setup);
  EXPECT_TRUE(data.val.is_masked());
  c.data.val = {chat.string()};
  data = load_run_data(c.data, std::nullopt, {}, setup);
  EXPECT_THAT(data.warning, HasSubstr("60 of 60 validation documents are also in the training text"));
  c.data.val = {text.string()};
  data = load_run_data(c.data, std::nullopt, {}, setup);
  EXPECT_FALSE(data.val.is_masked());
  c.data.loss_on = LossOn::kAll;
  const int64_t all = load_run_data(c.data, std::nullopt, {}, setup).train.targets();
  EXPECT_GT(all, data.train.targets());
}

TEST_F(ChatRun, AMixtureDrawsWholeWindowsOfChats) {
  RunConfig c = chat_config();
  c.data.train = {text.string(), chat.string()};
  c.data.mix = {1, 1};
  const RunData data = load_run_data(c.data, std::nullopt, {}, {.context = 64});
  ASSERT_EQ(data.mix.size(), 2u);
  EXPECT_FALSE(data.mix[0].is_packed);
  EXPECT_TRUE(data.mix[1].is_packed);
  const Sampler sampler = sampler_of(c, data);
  const int64_t chats = data.mix[0].train_tokens;
  for (int64_t i = 0; i < 40; ++i) {
    if (sampler.start(i) < chats) continue;
    EXPECT_EQ((sampler.start(i) - chats) % 64, 0);
  }
}

TEST_F(ChatRun, AConversationReadsOnlyWhatIsNew) {
  RunConfig c = chat_config();
  c.train.steps = 100;
  const auto model = train(c, folder / "talk").checkpoint;
  ChatOptions options;
  options.sample.temperature = 0;
  options.tokens = 6;
  ChatSession session(model, options);
  EXPECT_EQ(session.template_name(), "chatml");
  std::string shown;
  const auto show = [&](std::string_view piece) {
    shown += piece;
    return true;
  };
  // The answer is what the model makes of the rendered question.
  const auto tokenizer = load_tokenizer(model);
  const ChatAnswer first = session.ask("the cat sat?", show);
  EXPECT_EQ(first.read,
            std::ssize(encode_with_special(
                *tokenizer, "<|im_start|>user\nthe cat sat?<|im_end|>\n<|im_start|>assistant\n")));
  ASSERT_EQ(session.messages().size(), 2u);
  ASSERT_NE(shown, "");
  EXPECT_EQ(session.messages()[1].content, shown);
  const ChatAnswer second = session.ask("a dog?", show);
  EXPECT_LT(second.read, first.read + 8);
  const std::string line = chat_line(session.messages());
  const Conversation saved = parse_conversation(line, "chat.jsonl:1");
  ASSERT_EQ(saved.messages.size(), 4u);
  EXPECT_EQ(saved.messages[2].content, "a dog?");
  // The same conversation without the cache.
  ChatSession again(model, options);
  std::string repeated;
  for (const char* question : {"the cat sat?", "a dog?"}) {
    again.ask(question, [&](std::string_view piece) {
      repeated += piece;
      return true;
    });
  }
  EXPECT_EQ(repeated, shown);

  // The oldest exchanges are forgotten, and at last a question alone is too long.
  int64_t forgotten = 0;
  for (int i = 0; i < 6; ++i) forgotten = session.ask("who ran?", show).forgotten;
  EXPECT_GT(forgotten, 0);
  EXPECT_EQ(forgotten % 2, 0);
  const size_t before = session.messages().size();
  EXPECT_THAT(error_of([&] { session.ask(std::string(400, 'z'), show); }),
              HasSubstr("tokens, and the model reads 48 before an answer; shorten it"));
  EXPECT_EQ(session.messages().size(), before);
  session.reset();
  EXPECT_TRUE(session.messages().empty());
  const ChatAnswer stopped = session.ask("the cat sat?", [](std::string_view) { return false; });
  EXPECT_EQ(stopped.end, ChatAnswer::End::kStopped);
}

TEST_F(ChatRun, RefusalsNameTheKey) {
  RunConfig c = chat_config();
  c.data.has_document_mask = false;
  EXPECT_THAT(refusal_of_run(c), HasSubstr("needs data.document_mask = true"));
  c = chat_config();
  c.data.tokenizer = "bpe";
  EXPECT_THAT(refusal_of_run(c), HasSubstr("start from a model with --init FOLDER"));
  c = chat_config();
  c.data.chat_template = "chatlm";
  EXPECT_THAT(refusal_of_run(c), HasSubstr("data.chat_template must be one of chatml, llama2"));
  c.data.chat_template = "llama3";
  EXPECT_THAT(refusal_of_run(c), HasSubstr("the tokenizer has no token <|start_header_id|>"));
  c.data.chat_template = "zephyr";
  EXPECT_EQ(refusal_of_run(c), "no error");
  c = chat_config();
  c.data.val_fraction = 0;
  EXPECT_THAT(refusal_of_run(c), HasSubstr("there is no conversation for validation; set data.val"));
  fs::remove(folder / "model/chat_template.jinja");
  EXPECT_THAT(refusal_of_run(chat_config()), HasSubstr("there is no chat template with this tokenizer"));
}

}  // namespace
}  // namespace ingot
