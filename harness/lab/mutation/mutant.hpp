// Switches of mutation.py: all mutants of a file are compiled in, and $KVCTS_MUTANT activates one. Not part of any
// build.
#pragma once

#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>

namespace kvcts::mutant {

/// Leaves a note for mutation.py in $KVCTS_MUTANT_NOTES.
inline bool note(char word) {
  if (const char* path = std::getenv("KVCTS_MUTANT_NOTES")) {
    if (std::FILE* file = std::fopen(path, "a")) std::fputc(word, file), std::fclose(file);
  }
  return true;
}

/// Is the mutant active? Notes that it was reached.
inline bool is(int number) {
  static const int alive = [] {
    const char* text = std::getenv("KVCTS_MUTANT");
    return text != nullptr ? std::atoi(text) : 0;
  }();
  if (alive != number) return false;
  static const bool noted = note('r');
  return noted;
}

/// Other instead of Real; if Other does not exist for these types there is no mutant.
template <class Real, class Other, class A, class B>
decltype(auto) binary(int number, A&& a, B&& b) {
  using Result = decltype(Real{}(std::forward<A>(a), std::forward<B>(b)));
  if constexpr (requires {
                  { Other{}(std::forward<A>(a), std::forward<B>(b)) } -> std::convertible_to<Result>;
                }) {
    if (is(number)) return static_cast<Result>(Other{}(std::forward<A>(a), std::forward<B>(b)));
  } else {
    if (is(number)) note('v');
  }
  return Real{}(std::forward<A>(a), std::forward<B>(b));
}

template <class A, class B>
bool both(int number, const A& a, B&& b) {
  return is(number) ? static_cast<bool>(a) || b() : static_cast<bool>(a) && b();
}
template <class A, class B>
bool either(int number, const A& a, B&& b) {
  return is(number) ? static_cast<bool>(a) && b() : static_cast<bool>(a) || b();
}

template <class T>
T more(int number, T value) {
  return is(number) ? static_cast<T>(value + 1) : value;
}

}  // namespace kvcts::mutant
