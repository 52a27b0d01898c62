#include "ingot/tasks/evaluate_tasks.h"

#include <fmt/core.h>

#include "ingot/core/file.h"
#include "ingot/core/visible_text.h"
#include "ingot/tasks/scorer.h"

namespace ingot {

TaskResults evaluate_tasks(const std::filesystem::path& checkpoint, const TaskOptions& options) {
  TaskSet tasks(options.files, options.shots);
  ServedModel served(checkpoint, options.model);
  const Transformer& model = served.model();
  const Tokenizer& tokenizer = served.tokenizer();
  const TaskEncoder encoder(tokenizer,
                            TaskEncoder::starts_of(tokenizer, read_file(served.path() / "tokenizer.json")),
                            model.config().context, model.config().vocab);
  tasks.encode(encoder, [](const std::string& warning) {
    fmt::print(stderr, "warning: {}\n", visible_text(warning));
  });
  const InferShape shape = tasks.shape(options.batch_size, options.model.device);
  const InferBytes bytes = InferEngine::planned_bytes(model, shape, options.model.device);
  served.make_ready(bytes.host, bytes.device,
                    fmt::format("keys and values of {} records of {} tokens", shape.slots, shape.positions));
  Region alone;
  Scorer scorer(model, served.params(), alone, served.stream(), shape);
  return {.checkpoint = served.path(), .tasks = tasks.score(scorer, options.progress)};
}

}  // namespace ingot
