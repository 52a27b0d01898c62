#include <cstdlib>

#include <ingot/ops/toy.h>

int main(int count, char** words) { return count == 2 ? toy::twice(std::atoi(words[1])) : 1; }
