// Completion is a request that is being answered. The thread of the model adds tokens to its choices, and the
// thread of the server takes what is ready: the whole answer, or events of a stream.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ingot/api/api_request.h"
#include "ingot/http/http_server.h"
#include "ingot/infer/generate.h"

namespace ingot {

// {"error": {"message": ..., "type": ..., "param": ..., "code": null}}
HttpAnswer api_refusal(int status, const std::string& message, const std::string& param = "");

// A token and the logarithm of its probability, NaN for the first one of a prompt.
struct TokenScore {
  TokenId token = 0;
  double log_probability = NAN;
  std::vector<std::pair<TokenId, double>> top = {};  // the likeliest ones
  int64_t offset = 0;                                // characters of the text before it
};

struct ApiChoice {
  std::string text = {}, held = {};  // held: not yet in the text, because a stop may begin in it
  Utf8Stream utf8 = {};
  std::vector<TokenScore> scores = {};
  size_t sent_scores = 0;  // The stream has sent the first ones of `scores`, so many.
  int64_t offset = 0;      // The tokens in `scores` have so many characters.
  int64_t tokens = 0;      // So many were sampled.
  enum class End { kLength, kToken, kText } end = End::kLength;
  bool has_role = false;  // the stream has said who speaks
};

// The members that all objects of an answer have.
struct ApiIdentity {
  std::string id;
  int64_t created_s;  // seconds since 1970
  std::string model;
};

class Completion {
 public:
  // Borrows the model.
  Completion(ApiRequest request, const ApiModel& model);

  // Calls of the model's thread. Choices are counted over all prompts.
  size_t choices() const { return choices_.size(); }
  SequenceRequest sequence(size_t choice) const;
  // Takes the next token of a choice. Returns false if the choice ends with it.
  bool take(size_t choice, const SequenceToken& token);
  // Ends a choice. The answer is complete after the last one.
  void end(size_t choice);
  // Answers with an error, unless the answer is complete.
  void fail(int status, const std::string& message);
  bool is_over() const { return is_over_; }

  // Calls of the server's thread.
  // Returns the answer once it is complete.
  std::optional<HttpAnswer> answer();
  // Returns the events that are ready.
  std::string events(HttpStreamState& state);
  // The client has gone.
  void abandon() { is_abandoned_ = true; }

  bool is_abandoned() const { return is_abandoned_; }
  bool is_stream() const { return request_.is_stream; }
  double age_s() const;

 private:
  const ApiPrompt& prompt_of(size_t choice) const;
  void begin_scores(size_t choice);
  // logits: those that predict the token; empty if there are none.
  void add_score(ApiChoice& choice, TokenId id, std::span<const float> logits) const;
  // Adds text of a choice, and writes all but what may be the beginning of a stop. Returns false at a stop.
  bool pass(size_t choice, const std::string& piece);
  // Writes so many bytes of what is held back.
  void write(size_t choice, size_t bytes);
  // Sends a piece of a choice to the stream, with the scores since the last one. finish_reason: of its last
  // piece, or null.
  void send(size_t choice, const std::string& text, const char* finish_reason);
  void finish();

  const ApiRequest request_;
  const ApiModel& model_;
  const ApiIdentity identity_;
  const std::chrono::steady_clock::time_point begin_;
  const std::vector<TokenId> ends_;
  std::vector<ApiChoice> choices_;
  size_t left_;  // choices that have not ended
  std::atomic<bool> is_over_ = false, is_abandoned_ = false;

  std::mutex mutex_;  // guards the members below
  std::optional<HttpAnswer> answer_;
  std::string events_;
};

}  // namespace ingot
