// The Python module ingot._ingot; ingot/__init__.py is what users import.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ingot/config/config_toml.h"
#include "ingot/config/presets.h"
#include "ingot/core/error.h"
#include "ingot/core/process/thread_limit.h"
#include "python_trainer.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace ingot;

namespace {

using Array = nb::ndarray<nb::numpy, float, nb::c_contig>;
using Ids = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Gradient = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// The f32 numbers of a tensor, without a copy. owner: the trainer, which lives as long as the array.
Array array_of(const Tensor& tensor, nb::handle owner) {
  std::vector<size_t> shape;
  for (int i = 0; i < tensor.rank(); ++i) shape.push_back(static_cast<size_t>(tensor.dim(i)));
  return Array(tensor.as<float>(), shape.size(), shape.data(), owner);
}

// Returns an array with memory of its own, which fill(T*) writes.
template <typename T, typename Fill>
nb::object new_array(std::initializer_list<int64_t> dims, const Fill& fill) {
  std::vector<size_t> shape;
  size_t elements = 1;
  for (const int64_t dim : dims) elements *= shape.emplace_back(static_cast<size_t>(dim));
  auto numbers = std::make_unique_for_overwrite<T[]>(elements);
  T* const data = numbers.get();
  fill(data);
  const nb::capsule owner(numbers.release(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::c_contig>(data, shape.size(), shape.data(), owner));
}

// Runs f without the GIL, while no other thread uses the trainer.
template <typename F>
auto alone(PythonTrainer& trainer, const F& f) {
  const nb::gil_scoped_release released;
  const PythonTrainer::Turn turn(trainer);
  return f();
}

PythonRows rows_of(const Ids& tokens, const Ids& targets) {
  if (tokens.shape(0) != targets.shape(0) || tokens.shape(1) != targets.shape(1))
    fail(ErrorKind::kUsage, "tokens ({}, {}) and targets ({}, {}) must have one shape", tokens.shape(0),
         tokens.shape(1), targets.shape(0), targets.shape(1));
  return {.rows = static_cast<int64_t>(tokens.shape(0)),
          .columns = static_cast<int64_t>(tokens.shape(1)),
          .tokens = {tokens.data(), tokens.size()},
          .targets = {targets.data(), targets.size()}};
}

// Returns the loss that f(logits, targets) computes. f returns the loss and its gradient, whose shape is that of
// the logits (B, T, vocab); both arrays that it gets are its own. Borrows f.
CustomLoss::Function loss_of(const nb::object& f, const RunConfig& config) {
  if (f.is_none()) return {};
  const int64_t B = config.train.batch_size, T = config.model.context, vocab = config.model.vocab;
  // A handle, because copies of the function are made and destroyed without the GIL.
  return
      [f = nb::handle(f), B, T, vocab](const Tensor& logits, const Tensor& targets, const Tensor& d_logits) {
        const nb::gil_scoped_acquire held;
        const int64_t Vp = logits.dim(1);
        const nb::object z = new_array<float>({B, T, vocab}, [&](float* to) {
          for (int64_t n = 0; n < B * T; ++n) std::copy_n(logits.as<float>() + n * Vp, vocab, to + n * vocab);
        });
        const nb::object ids =
            new_array<int32_t>({B, T}, [&](int32_t* to) { std::copy_n(targets.as<int32_t>(), B * T, to); });
        const auto [loss, gradient] = nb::cast<std::pair<double, Gradient>>(f(z, ids));
        if (!d_logits) return loss;
        INGOT_CHECK(gradient.size() == static_cast<size_t>(B * T * vocab),
                    "the loss gave {} gradients for {} logits", gradient.size(), B * T * vocab);
        for (int64_t n = 0; n < B * T; ++n)
          std::copy_n(gradient.data() + n * vocab, vocab, d_logits.as<float>() + n * Vp);
        return loss;
      };
}

// tokens, targets: None for the next batch of the text; loss: None for cross-entropy.
PythonStep run_step(PythonTrainer& trainer, PythonStep (PythonTrainer::*method)(const PythonOrder&),
                    const std::optional<Ids>& tokens, const std::optional<Ids>& targets,
                    std::optional<double> lr, const nb::object& loss) {
  PythonOrder order{.batch = {}, .lr = lr, .loss = loss_of(loss, trainer.config())};
  if (tokens && targets) order.batch = rows_of(*tokens, *targets);
  PythonStep step = alone(trainer, [&] { return (trainer.*method)(order); });
  return step;
}

nb::dict step_dict(const PythonStep& step) {
  nb::dict metrics;
  metrics["step"] = step.step;
  metrics["loss"] = step.result.loss;
  if (!step.result.step.order.loss) metrics["top1"] = step.result.top1;
  metrics["grad_norm"] = step.result.grad_norm;
  metrics["clip"] = step.result.clip;
  metrics["lr"] = step.lr;
  metrics["tokens"] = step.result.tokens;
  metrics["step_ms"] = 1e3 * step.seconds;
  metrics["tokens_per_s"] = static_cast<double>(step.result.tokens) / step.seconds;
  return metrics;
}

nb::dict eval_dict(const EvalResult& eval) {
  nb::dict metrics;
  metrics["loss"] = eval.loss;
  metrics["top1"] = eval.top1;
  metrics["tokens"] = eval.tokens;
  if (eval.bits_per_byte > 0) metrics["bits_per_byte"] = eval.bits_per_byte;
  return metrics;
}

nb::dict arrays(PythonTrainer& trainer, nb::handle owner, const std::function<Tensor(int)>& tensor) {
  nb::dict all;
  const std::vector<ParamSpec>& specs = trainer.params().list().specs();
  for (size_t id = 0; id < specs.size(); ++id)
    if (specs[id].is_trained) all[specs[id].name.c_str()] = array_of(tensor(static_cast<int>(id)), owner);
  return all;
}

// Runs the training on a thread of its own while this one looks for Ctrl-C, so the GIL is free. The run saves
// before it ends.
nb::dict train(const std::string& source, const std::vector<std::string>& data,
               const std::vector<std::string>& settings, const std::string& out, bool is_resume,
               const nb::object& on_line) {
  const RunConfig config =
      python_config(source, data, settings,
                    is_resume ? std::optional(std::filesystem::path(out) / "config.toml") : std::nullopt);
  std::atomic<bool> is_stop_requested = false;
  std::mutex mutex;
  std::vector<std::string> lines;
  std::future<TrainOutcome> run = std::async(std::launch::async, [&] {
    return python_train(config, out, is_resume, is_stop_requested, [&](std::string_view line) {
      const std::lock_guard lock(mutex);
      lines.emplace_back(line);
    });
  });
  std::exception_ptr interruption;
  const auto speak = [&] {
    std::vector<std::string> said;
    {
      const std::lock_guard lock(mutex);
      said.swap(lines);
    }
    if (on_line.is_none() || interruption) return;
    for (const std::string& line : said) on_line(line);
  };
  bool is_done = false;
  while (!is_done) {
    {
      nb::gil_scoped_release released;
      is_done = run.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
    }
    try {
      speak();
      if (!interruption && PyErr_CheckSignals() != 0) throw nb::python_error();
    } catch (nb::python_error&) {  // Ctrl-C, or an error of on_line
      interruption = std::current_exception();
      is_stop_requested = true;
    }
  }
  const TrainOutcome outcome = run.get();
  if (interruption) std::rethrow_exception(interruption);
  speak();
  nb::dict result = eval_dict(outcome.final_eval);
  result["steps"] = outcome.steps;
  result["tokens"] = outcome.tokens;
  result["checkpoint"] = outcome.checkpoint.string();
  return result;
}

// Raises the exception of ingot/errors.py for the error's kind.
void set_error(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const nb::object exception =
        nb::module_::import_("ingot.errors").attr("of_exit_code")(exit_code(error.kind()), error.what());
    PyErr_SetObject(exception.type().ptr(), exception.ptr());
  }
}

}  // namespace

NB_MODULE(_ingot, m) {
  use_machine_threads();
  nb::register_exception_translator(set_error);

  m.def(
      "presets",
      [] {
        nb::dict all;
        for (const Preset& preset : presets()) {
          const std::string_view summary = preset_summary(preset);
          all[nb::str(preset.name.data(), preset.name.size())] = nb::str(summary.data(), summary.size());
        }
        return all;
      },
      "The presets: what each is for, by name.");
  m.def("config_reference", &config_reference,
        "All configuration keys with their rules, meanings and defaults.");
  m.def(
      "config_toml",
      [](const std::string& source, const std::vector<std::string>& data,
         const std::vector<std::string>& settings) {
        return config_toml(python_config(source, data, settings, std::nullopt, PythonData::kRows),
                           ConfigDocs::kNone);
      },
      "source"_a, "data"_a, "settings"_a, "The resolved configuration as TOML.");
  m.def("train", &train, "source"_a, "data"_a, "settings"_a, "out"_a, "resume"_a, "on_line"_a.none());

  nb::class_<PythonTrainer>(m, "Trainer")
      .def(
          "__init__",
          [](PythonTrainer* self, const std::string& source, const std::vector<std::string>& data,
             const std::vector<std::string>& settings, bool is_given_rows, const std::string& resumed,
             bool resume_anyway) {
            const PythonData kind = is_given_rows ? PythonData::kRows : PythonData::kText;
            {
              const nb::gil_scoped_release released;
              std::optional<std::filesystem::path> checkpoint, saved_config;
              if (!resumed.empty()) checkpoint = python_checkpoint(resumed);
              if (checkpoint) saved_config = *checkpoint / "config.toml";
              const RunConfig config = python_config(checkpoint ? saved_config->string() : source, data,
                                                     settings, saved_config, kind);
              new (self) PythonTrainer(config, kind, checkpoint,
                                       resume_anyway ? DataMismatch::kAccepted : DataMismatch::kRefused);
            }
            if (!self->warning().empty() && PyErr_WarnEx(PyExc_UserWarning, self->warning().c_str(), 1) < 0)
              throw nb::python_error();
          },
          "source"_a, "data"_a, "settings"_a, "is_given_rows"_a = false, "resumed"_a = "",
          "resume_anyway"_a = false)
      .def(
          "step",
          [](PythonTrainer& self, const std::optional<Ids>& tokens, const std::optional<Ids>& targets,
             std::optional<double> lr, const nb::object& loss) {
            return step_dict(run_step(self, &PythonTrainer::step, tokens, targets, lr, loss));
          },
          "tokens"_a = nb::none(), "targets"_a = nb::none(), "lr"_a = nb::none(), "loss"_a = nb::none())
      .def(
          "backward",
          [](PythonTrainer& self, const std::optional<Ids>& tokens, const std::optional<Ids>& targets,
             std::optional<double> lr, const nb::object& loss) {
            return step_dict(run_step(self, &PythonTrainer::backward, tokens, targets, lr, loss));
          },
          "tokens"_a = nb::none(), "targets"_a = nb::none(), "lr"_a = nb::none(), "loss"_a = nb::none())
      .def(
          "update", [](PythonTrainer& self) { alone(self, [&] { self.update(); }); },
          "Makes the optimizer's update with the gradients of backward(), which mean nothing afterwards.")
      .def(
          "discard", [](PythonTrainer& self) { alone(self, [&] { self.discard(); }); },
          "Zeroes the gradients of backward() without an update.")
      .def(
          "loss",
          [](PythonTrainer& self, const Ids& tokens, const Ids& targets) {
            const PythonRows rows = rows_of(tokens, targets);
            const LossSums sums = alone(self, [&] { return self.loss(rows); });
            if (sums.counted == 0)
              fail(ErrorKind::kUsage, "all targets are -100: there is nothing to predict");
            return sums.loss / static_cast<double>(sums.counted);
          },
          "tokens"_a, "targets"_a)
      .def(
          "logits",
          [](PythonTrainer& self, const Ids& tokens) {
            const PythonRows rows = rows_of(tokens, tokens);
            return new_array<float>({rows.rows, rows.columns, self.config().model.vocab},
                                    [&](float* out) { alone(self, [&] { self.logits(rows, out); }); });
          },
          "tokens"_a)
      .def(
          "evaluate",
          [](PythonTrainer& self, int64_t max_tokens) {
            return eval_dict(alone(self, [&] { return self.evaluate(max_tokens); }));
          },
          "max_tokens"_a = 0, "Loss, top-1 and bits per byte of the validation text; 0: of all of it.")
      .def(
          "generate",
          [](PythonTrainer& self, const std::string& prompt, int64_t tokens, float temperature, int64_t top_k,
             float top_p, uint64_t seed) {
            SampleConfig config;
            config.temperature = temperature;
            config.top_k = top_k;
            config.top_p = top_p;
            const std::string text = alone(self, [&] { return self.generate(prompt, tokens, config, seed); });
            return nb::steal<nb::str>(PyUnicode_DecodeUTF8(text.data(), std::ssize(text), "replace"));
          },
          "prompt"_a = "", "tokens"_a = 100, "temperature"_a = 1.0f, "top_k"_a = 0, "top_p"_a = 1.0f,
          "seed"_a = 1337, "Returns the prompt and its continuation; bytes that are no UTF-8 become U+FFFD.")
      .def(
          "encode",
          [](const PythonTrainer& self, const std::string& text) { return encode(self.tokenizer(), text); },
          "text"_a, "The token ids of a text.")
      .def(
          "decode",
          [](const PythonTrainer& self, const std::vector<TokenId>& ids) {
            const std::string text = decode(self.tokenizer(), ids);
            return nb::steal<nb::str>(PyUnicode_DecodeUTF8(text.data(), std::ssize(text), "replace"));
          },
          "ids"_a, "The text of token ids; bytes that are no UTF-8 become U+FFFD.")
      .def(
          "save",
          [](PythonTrainer& self, const std::string& folder) {
            return alone(self, [&] { return self.save(folder); }).string();
          },
          "folder"_a)
      .def_prop_ro("next_rows", &PythonTrainer::next_rows, "Rows of the next step's batch.")
      .def_prop_ro("given_rows", &PythonTrainer::given_rows, "Rows of batches that were no text's.")
      .def_prop_ro(
          "seed", [](const PythonTrainer& self) { return self.config().train.seed; }, "train.seed")
      .def_prop_ro(
          "context", [](const PythonTrainer& self) { return self.config().model.context; }, "model.context")
      .def_prop_ro(
          "vocab", [](const PythonTrainer& self) { return self.config().model.vocab; }, "model.vocab")
      .def_prop_ro(
          "eval_every", [](const PythonTrainer& self) { return self.config().eval.every; },
          "eval.every: steps between evaluations in run(); 0: only at the end")
      .def_prop_ro("steps_done", &PythonTrainer::steps_done, "Updates made.")
      .def_prop_ro("is_finished", &PythonTrainer::is_finished, "True if the schedule has ended.")
      .def_prop_ro(
          "config", [](const PythonTrainer& self) { return config_toml(self.config(), ConfigDocs::kNone); },
          "The resolved configuration as TOML.")
      .def(
          "weights",
          [](nb::object self) {
            auto& trainer = nb::cast<PythonTrainer&>(self);
            return arrays(trainer, self, [&](int id) { return trainer.params().master(id); });
          },
          "The f32 weights by name, without a copy: an assignment to their elements changes the model.")
      .def(
          "gradients",
          [](nb::object self) {
            auto& trainer = nb::cast<PythonTrainer&>(self);
            return arrays(trainer, self, [&](int id) { return trainer.params().grad(id); });
          },
          "The f32 gradients by name, without a copy: sums over the tokens until update() scales and clips "
          "them.")
      .def(
          "weights_changed", [](PythonTrainer& self) { alone(self, [&] { self.weights_changed(); }); },
          "Call it after an assignment to the weights of a model that computes in bf16 or f16.");
}
