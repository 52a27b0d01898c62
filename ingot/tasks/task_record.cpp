#include "ingot/tasks/task_record.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"
#include "ingot/data/tokenizer/unicode.h"
#include "ingot/formats/jsonl.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

// Matches Python's str.isspace().
bool is_space(uint32_t c) {
  return (0x1c <= c && c <= 0x1f) || (c <= 0x10FFFF && char_class(c) == CharClass::kSpace);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Removes the artifacts of WikiHow in HellaSwag, as lm-evaluation-harness does.
std::string cleaned(std::string_view raw) {
  std::string text(without_outer_space(raw));
  replace_all(text, " [title]", ". ");
  for (size_t at = 0; (at = text.find('[', at)) != std::string::npos;) {
    const size_t end = text.find_first_of("]\n", at);
    if (end != std::string::npos && text[end] == ']')
      text.erase(at, end - at + 1);
    else
      ++at;
  }
  replace_all(text, "  ", " ");
  return text;
}

// Matches Python's str.capitalize() for characters whose two cases are one code point each.
std::string capitalized(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text, i);
    if (c.is_valid()) {
      const auto value = static_cast<utf8proc_int32_t>(c.value);
      append_utf8(static_cast<uint32_t>(i == 0 ? utf8proc_totitle(value) : utf8proc_tolower(value)), out);
    } else {
      out += text[i];
    }
    i += c.length_bytes;
  }
  return out;
}

// A line's object, whose errors name the place.
class Fields {
 public:
  Fields(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kData, "{}: {}", place_, visible_line(fmt::format(format, std::forward<Args>(args)...)));
  }
  bool has(const char* key) const { return object_.contains(key); }
  // The value of a member; null if there is none.
  const Json& value(const char* key) const {
    static const Json none;
    const auto found = object_.find(key);
    return found == object_.end() ? none : *found;
  }
  const std::string& text(const char* key, bool may_be_empty = false) const {
    return text_of(value(key), key, may_be_empty);
  }
  const std::string& text_of(const Json& value, std::string_view what, bool may_be_empty = false) const {
    if (value.is_null()) refuse("\"{}\" is missing; correct the record or leave it out", what);
    if (!value.is_string())
      refuse("\"{}\" must be a text, got {}; correct the record or leave it out", what, value.type_name());
    const auto& text = value.get_ref<const std::string&>();
    if (!may_be_empty && without_outer_space(text).empty())
      refuse("\"{}\" is empty; correct the record or leave it out", what);
    return text;
  }
  // The texts of a list of at least two.
  std::vector<std::string> texts(const Json& list, std::string_view what, bool may_be_empty = false) const {
    if (list.is_null()) refuse("\"{}\" is missing; correct the record or leave it out", what);
    if (!list.is_array() || list.size() < 2)
      refuse("\"{}\" must be a list of two texts or more, got {}; correct the record or leave it out", what,
             list.is_array() ? fmt::format("a list of {}", list.size()) : list.type_name());
    std::vector<std::string> out;
    for (const Json& item : list)
      out.push_back(text_of(item, fmt::format("{}[{}]", what, out.size()), may_be_empty));
    return out;
  }
  std::vector<std::string> texts(const char* key, bool may_be_empty = false) const {
    return texts(value(key), key, may_be_empty);
  }
  // The index of the right option, from a number, digits, a boolean, or the capital letter of an option. The
  // first option has the number `first`.
  size_t answer(const char* key, size_t options, int64_t first = 0) const {
    const Json& given = answer_value(key);
    int64_t number = -1;
    if (given.is_boolean()) {
      number = given.get<bool>() ? 1 : 0;
    } else if (given.is_number_integer()) {
      number = given.get<int64_t>();
    } else if (given.is_string()) {
      const std::string text(without_outer_space(given.get_ref<const std::string&>()));
      if (text.size() == 1 && 'A' <= text[0] && text[0] <= 'Z')
        number = text[0] - 'A' + first;
      else if (!text.empty() && text.size() < 10 &&
               std::ranges::all_of(text, [](char c) { return '0' <= c && c <= '9'; }))
        number = std::stoll(text);
    }
    const int64_t last = first + static_cast<int64_t>(options) - 1;
    if (number < first || number > last)
      refuse("\"{}\" is {}, expected {} .. {}; correct the record or leave it out", key, given.dump(), first,
             last);
    return static_cast<size_t>(number - first);
  }
  // The value of an answer that there is. Records of hidden answers have none, "" or -1.
  const Json& answer_value(const char* key) const {
    const Json& given = value(key);
    const bool is_empty = given.is_string() && given.get_ref<const std::string&>().empty();
    if (given.is_null() || is_empty || given == -1 || given == "-1")
      refuse("no answer: \"{}\" is {}; take a split with answers, such as the validation split", key,
             has(key) ? given.dump() : "missing");
    return given;
  }
  std::string names() const {
    std::string all;
    for (const auto& [key, value] : object_.items()) all += (all.empty() ? "" : ", ") + key;
    return all;
  }

 private:
  const Json& object_;
  std::string place_;
};

TaskShape shape_of(const Fields& in) {
  const Json& question = in.value("question");
  if (in.has("context_options")) return TaskShape::kCoreSchema;
  if (in.has("query") && in.has("choices")) return TaskShape::kCoreChoice;
  if (in.has("endings")) return TaskShape::kHellaSwag;
  if (in.has("goal") && in.has("sol1")) return TaskShape::kPiqa;
  if (in.has("sentence") && in.has("option1")) return TaskShape::kWinoGrande;
  if (in.has("passage") && in.has("question")) return TaskShape::kBoolQ;
  if (in.has("question_stem")) return TaskShape::kOpenBookQa;
  if (question.is_object() || (in.has("question") && in.has("answerKey"))) return TaskShape::kArc;
  if (in.has("question") && in.has("choices")) return TaskShape::kMmlu;
  if (in.has("context") && in.has("continuation")) return TaskShape::kCoreText;
  if (in.has("text")) return TaskShape::kLambada;
  in.refuse("unknown shape of a task, with the fields {}; docs/tasks.md has the known shapes", in.names());
}

TaskRecord hellaswag(const Fields& in) {
  TaskRecord record;
  std::string context = in.has("ctx_a") && in.has("ctx_b")
                            ? in.text("ctx_a", true) + " " + capitalized(in.text("ctx_b", true))
                            : in.text("ctx");
  if (in.has("activity_label")) context = in.text("activity_label", true) + ": " + context;
  record.contexts = {cleaned(context)};
  for (const std::string& ending : in.texts("endings")) {
    record.continuations.push_back(cleaned(ending));
    if (record.continuations.back().empty())
      in.refuse("\"endings[{}]\" is empty without its brackets; correct the record or leave it out",
                record.continuations.size() - 1);
  }
  record.answer = in.answer("label", record.continuations.size());
  return record;
}

// Puts choices with labels, and the one that answerKey names, into a record. They are {"text": [...],
// "label": [...]} or a list of {"text", "label"}.
void take_labelled(const Fields& in, const Json& choices, TaskRecord& record) {
  Json texts = Json::array(), labels = Json::array();
  if (choices.is_object()) {
    texts = choices.value("text", Json());
    labels = choices.value("label", Json());
  } else if (choices.is_array()) {
    for (const Json& choice : choices) {
      texts.push_back(choice.is_object() ? choice.value("text", Json()) : Json());
      labels.push_back(choice.is_object() ? choice.value("label", Json()) : Json());
    }
  }
  record.continuations = in.texts(texts, "choices.text");
  const std::vector<std::string> names = in.texts(labels, "choices.label");
  if (names.size() != texts.size())
    in.refuse("\"choices\" has {} texts and {} labels; correct the record or leave it out", texts.size(),
              names.size());
  const std::string key(without_outer_space(in.text_of(in.answer_value("answerKey"), "answerKey")));
  record.answer = static_cast<size_t>(std::ranges::find(names, key) - names.begin());
  if (record.answer == names.size())
    in.refuse("\"answerKey\" is {}, which no choice has as its label; correct the record or leave it out",
              key);
}

TaskRecord arc(const Fields& in) {
  TaskRecord record;
  const Json& question = in.value("question");
  const bool is_nested = question.is_object();
  const std::string stem =
      is_nested ? in.text_of(question.value("stem", Json()), "question.stem") : in.text("question");
  record.contexts = {"Question: " + stem + "\nAnswer:"};
  take_labelled(in, is_nested ? question.value("choices", Json()) : in.value("choices"), record);
  return record;
}

TaskRecord openbookqa(const Fields& in) {
  TaskRecord record{.contexts = {in.text("question_stem")}};
  take_labelled(in, in.value("choices"), record);
  return record;
}

TaskRecord piqa(const Fields& in) {
  return {.contexts = {"Question: " + in.text("goal") + "\nAnswer:"},
          .continuations = {in.text("sol1"), in.text("sol2")},
          .answer = in.answer("label", 2)};
}

// The options stand in the context, and what follows the blank is predicted.
TaskRecord winogrande(const Fields& in) {
  const std::string& sentence = in.text("sentence");
  const size_t blank = sentence.find('_');
  if (blank == std::string::npos)
    in.refuse("\"sentence\" has no _ for the options; correct the record or leave it out");
  const std::string rest(without_outer_space(std::string_view(sentence).substr(blank + 1)));
  if (rest.empty()) in.refuse("\"sentence\" ends at its _; correct the record or leave it out");
  const std::string before = sentence.substr(0, blank);
  return {.contexts = {before + in.text("option1"), before + in.text("option2")},
          .continuations = {rest},
          .answer = in.answer("answer", 2, 1)};
}

TaskRecord boolq(const Fields& in) {
  return {.contexts = {in.text("passage") + "\nQuestion: " + in.text("question") + "?\nAnswer:"},
          .continuations = {"no", "yes"},
          .answer = in.answer(in.has("label") ? "label" : "answer", 2)};
}

// The last word is predicted; words end at spaces.
TaskRecord lambada(const Fields& in) {
  const std::string& text = in.text("text");
  const size_t space = text.rfind(' ');
  if (space == std::string::npos || without_outer_space(text.substr(0, space)).empty())
    in.refuse("\"text\" has one word, and at least two are needed; correct the record or leave it out");
  if (space + 1 == text.size())
    in.refuse("\"text\" ends with a space, so its last word is empty; remove the space");
  return {.contexts = {text.substr(0, space)}, .continuations = {text.substr(space + 1)}};
}

TaskRecord mmlu(const Fields& in) {
  const std::vector<std::string> choices = in.texts("choices");
  if (choices.size() > 26)
    in.refuse("\"choices\" has {} texts, and there are 26 letters; leave the record out", choices.size());
  TaskRecord record;
  std::string context(without_outer_space(in.text("question")));
  for (size_t i = 0; i < choices.size(); ++i) {
    record.continuations.emplace_back(1, static_cast<char>('A' + i));
    context += "\n" + record.continuations.back() + ". " + choices[i];
  }
  record.contexts = {context + "\nAnswer:"};
  record.answer = in.answer("answer", choices.size());
  if (in.has("subject")) record.subject = in.text("subject", true);
  std::ranges::replace(record.subject, '_', ' ');
  return record;
}

TaskRecord core_choice(const Fields& in) {
  TaskRecord record{.contexts = {in.text("query", true)}, .continuations = in.texts("choices")};
  record.answer = in.answer("gold", record.continuations.size());
  return record;
}

TaskRecord core_schema(const Fields& in) {
  TaskRecord record{.contexts = in.texts("context_options", true),
                    .continuations = {in.text("continuation")}};
  record.answer = in.answer("gold", record.contexts.size());
  return record;
}

TaskRecord core_text(const Fields& in) {
  return {.contexts = {std::string(without_outer_space(in.text("context", true)))},
          .continuations = {in.text("continuation")}};
}

struct ShapeInfo {
  const char* name;
  TaskRecord (*parse)(const Fields& in);
};
const ShapeInfo& info_of(TaskShape shape) {
  static const std::array<ShapeInfo, 11> all{{{"hellaswag", hellaswag},
                                              {"arc", arc},
                                              {"openbookqa", openbookqa},
                                              {"piqa", piqa},
                                              {"winogrande", winogrande},
                                              {"boolq", boolq},
                                              {"lambada", lambada},
                                              {"mmlu", mmlu},
                                              {"multiple_choice", core_choice},
                                              {"schema", core_schema},
                                              {"language_modeling", core_text}}};
  return all[static_cast<size_t>(shape)];
}

}  // namespace

const char* name(TaskShape shape) { return info_of(shape).name; }
bool is_core(TaskShape shape) { return shape >= TaskShape::kCoreChoice; }
bool is_cloze(TaskShape shape) { return shape == TaskShape::kLambada || shape == TaskShape::kCoreText; }

TaskRecord parse_task_record(std::string_view text, std::string_view file, int64_t line,
                             std::optional<TaskShape>& shape) {
  const std::string place = fmt::format("{}:{}", file, line);
  Json object;
  try {
    object = Json::parse(text, [](int depth, Json::parse_event_t, const Json&) {
      if (depth > kMaxJsonlDepth) fail(ErrorKind::kData, "nested deeper than {}", kMaxJsonlDepth);
      return true;
    });
  } catch (const Json::parse_error& error) {
    fail(ErrorKind::kData, "{}: column {} is not valid JSON; write one JSON object per line", place,
         error.byte);
  } catch (const Error& error) {
    fail(ErrorKind::kData, "{}: {}; correct the line or leave it out", place, error.what());
  }
  const Fields in(object, place);
  if (!object.is_object())
    in.refuse("holds a JSON {}, expected an object; write one JSON object per line", object.type_name());
  const TaskShape own = shape_of(in);
  if (own != shape.value_or(own))
    in.refuse("has the shape {}, and the records before it have the shape {}; put them into two files",
              name(own), name(*shape));
  shape = own;
  TaskRecord record = info_of(own).parse(in);
  record.line = line;
  return record;
}

std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!is_space(decode_utf8(text, begin).value)) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::string_view without_outer_space(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text, 0);
    if (!is_space(c.value)) break;
    text.remove_prefix(c.length_bytes);
  }
  return without_trailing_space(text);
}

}  // namespace ingot
