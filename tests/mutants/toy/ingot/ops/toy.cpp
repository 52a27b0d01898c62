#include <ingot/ops/toy.h>

#include <array>

namespace toy {

int sum_to_ten(int a, int b) {
  const int sum = a + b;
  return sum > 10 ? 10 : sum;
}

int steps_to_zero(int n) {
  volatile int steps = 0;
  for (volatile long left = n; left != 0; left = left - 1) steps = steps + 1;
  return steps;
}

int product(int a, int b) {
  const std::array<int, 2> factors{a, b};
  return factors[0] * factors[1];
}

int twice(int a) { return a * 2; }

int untested(int a) { return a - 3; }

}  // namespace toy
