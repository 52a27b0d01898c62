// TypeList is a list of types, and Joined concatenates such lists. optim/rules/rule_list.h uses both.
#pragma once

#include <type_traits>

namespace ingot {

template <typename... Types>
struct TypeList {};

template <typename... Lists>
struct Joined {
  using type = TypeList<>;
};
template <typename... Types>
struct Joined<TypeList<Types...>> {
  using type = TypeList<Types...>;
};
template <typename... First, typename... Second, typename... Rest>
struct Joined<TypeList<First...>, TypeList<Second...>, Rest...>
    : Joined<TypeList<First..., Second...>, Rest...> {};

// Calls f.template operator()<Type>() for each type, in order.
template <typename... Types, typename F>
void for_each_type(TypeList<Types...> /*types*/, F&& f) {
  (f.template operator()<Types>(), ...);
}

}  // namespace ingot
