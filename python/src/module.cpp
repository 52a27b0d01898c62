// The Python module ingot._ingot; ingot/__init__.py is what users import.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <future>
#include <mutex>
#include <string>
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

// The f32 numbers of a tensor, without a copy. owner: the trainer, which lives as long as the array.
Array array_of(const Tensor& tensor, nb::handle owner) {
  std::vector<size_t> shape;
  for (int i = 0; i < tensor.rank(); ++i) shape.push_back(static_cast<size_t>(tensor.dim(i)));
  return Array(tensor.as<float>(), shape.size(), shape.data(), owner);
}

nb::dict step_dict(const PythonStep& step) {
  nb::dict metrics;
  metrics["step"] = step.step;
  metrics["loss"] = step.result.loss;
  metrics["top1"] = step.result.top1;
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
  std::atomic<bool> is_told_to_end = false;
  std::mutex mutex;
  std::vector<std::string> lines;
  std::future<TrainOutcome> run = std::async(std::launch::async, [&] {
    return python_train(config, out, is_resume, is_told_to_end, [&](std::string_view line) {
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
      is_told_to_end = true;
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

void set_error(const std::exception_ptr& thrown, void* type) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    nb::object exception = nb::handle(static_cast<PyObject*>(type))(error.what());
    exception.attr("exit_code") = exit_code(error.kind());
    PyErr_SetObject(static_cast<PyObject*>(type), exception.ptr());
  }
}

}  // namespace

NB_MODULE(_ingot, m) {
  use_machine_threads();
  const nb::exception<Error> error_type(m, "Error", PyExc_RuntimeError);
  nb::register_exception_translator(set_error, error_type.ptr());

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
        return config_toml(python_config(source, data, settings), ConfigDocs::kNone);
      },
      "source"_a, "data"_a, "settings"_a, "The resolved configuration as TOML.");
  m.def("train", &train, "source"_a, "data"_a, "settings"_a, "out"_a, "resume"_a, "on_line"_a.none());

  nb::class_<PythonTrainer>(m, "Trainer")
      .def(
          "__init__",
          [](PythonTrainer* self, const std::string& source, const std::vector<std::string>& data,
             const std::vector<std::string>& settings) {
            const RunConfig config = python_config(source, data, settings);
            {
              nb::gil_scoped_release released;
              new (self) PythonTrainer(config);
            }
            if (!self->warning().empty() && PyErr_WarnEx(PyExc_UserWarning, self->warning().c_str(), 1) < 0)
              throw nb::python_error();
          },
          "source"_a, "data"_a, "settings"_a)
      .def(
          "step",
          [](PythonTrainer& self) {
            PythonStep step;
            {
              nb::gil_scoped_release released;
              step = self.step();
            }
            return step_dict(step);
          },
          "Makes the next step of the schedule: forward, backward and update. Returns its metrics.")
      .def(
          "backward",
          [](PythonTrainer& self) {
            PythonStep step;
            {
              nb::gil_scoped_release released;
              step = self.backward();
            }
            return step_dict(step);
          },
          "Computes loss and gradients of the next step; update() or discard() must follow.")
      .def("update", &PythonTrainer::update, nb::call_guard<nb::gil_scoped_release>(),
           "Makes the optimizer's update with the gradients of backward(), which mean nothing afterwards.")
      .def("discard", &PythonTrainer::discard, nb::call_guard<nb::gil_scoped_release>(),
           "Zeroes the gradients of backward() without an update.")
      .def(
          "evaluate",
          [](PythonTrainer& self, int64_t max_tokens) {
            EvalResult eval;
            {
              nb::gil_scoped_release released;
              eval = self.evaluate(max_tokens);
            }
            return eval_dict(eval);
          },
          "max_tokens"_a = 0, "Loss, top-1 and bits per byte of the validation text; 0: of all of it.")
      .def(
          "generate",
          [](PythonTrainer& self, const std::string& prompt, int64_t tokens, float temperature, int64_t top_k,
             uint64_t seed) {
            SampleConfig config;
            config.temperature = temperature;
            config.top_k = top_k;
            nb::gil_scoped_release released;
            return self.generate(prompt, tokens, config, seed);
          },
          "prompt"_a = "", "tokens"_a = 100, "temperature"_a = 1.0f, "top_k"_a = 0, "seed"_a = 1337,
          "Returns the prompt and its continuation.")
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
      .def("weights_changed", &PythonTrainer::weights_changed, nb::call_guard<nb::gil_scoped_release>(),
           "Call it after an assignment to the weights of a model that computes in bf16 or f16.");
}
