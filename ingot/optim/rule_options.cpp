#include "ingot/optim/rule_options.h"

namespace ingot {
namespace {

bool is_within(Limit limit, double value) {
  switch (limit) {
    case Limit::kNone:
      return true;
    case Limit::kFraction:
      return value >= 0 && value < 1;
    case Limit::kPositive:
      return value > 0;
    case Limit::kNotNegative:
      return value >= 0;
  }
  return false;
}

const char* rule_of(Limit limit) {
  if (limit == Limit::kFraction) return "lie in [0, 1)";
  return limit == Limit::kPositive ? "be above 0" : "not be negative";
}

}  // namespace

void check_limit(const OptionInfo& option, const OptionValue& value, const std::string& prefix) {
  double number = 0;
  if (const auto* real = std::get_if<double>(&value))
    number = *real;
  else if (const auto* whole = std::get_if<int64_t>(&value))
    number = static_cast<double>(*whole);
  else
    return;
  if (!is_within(option.limit, number))
    fail(ErrorKind::kUsage, "{}{} must {}, got {}", prefix, option.key, rule_of(option.limit), number);
}

}  // namespace ingot
