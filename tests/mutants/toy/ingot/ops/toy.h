#pragma once

namespace toy {

int sum_to_ten(int a, int b);  // a + b, at most 10
int steps_to_zero(int n);
int product(int a, int b);
int twice(int a);
int untested(int a);

}  // namespace toy
