#include "ingot/core/error.h"

namespace ingot {

void fail_formatted(ErrorKind kind, fmt::string_view format, fmt::format_args args) {
  throw Error(fmt::vformat(format, args), kind);
}

}  // namespace ingot
