// Coroutines for the supervisor's executors: an executor reads as one sequence, and waits without a thread.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace kvcts::supervisor {

/// A lazily started coroutine with one awaiter. Destroying the task destroys the coroutine, with everything that it awaits.
template <class T>
class Task;

namespace detail {

struct PromiseBase {
  std::coroutine_handle<> waiter{std::noop_coroutine()};
  std::exception_ptr error;

  std::suspend_always initial_suspend() noexcept { return {}; }
  auto final_suspend() noexcept {
    struct Resume {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<>) noexcept { return waiter; }
      void await_resume() noexcept {}
      std::coroutine_handle<> waiter;
    };
    return Resume{waiter};
  }
  void unhandled_exception() { error = std::current_exception(); }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  void return_value(T result) { value = std::move(result); }
  T take() {
    if (error) std::rethrow_exception(error);
    return std::move(*value);
  }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() {}
  void take() {
    if (error) std::rethrow_exception(error);
  }
};

}  // namespace detail

template <class T>
class Task {
 public:
  using promise_type = detail::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiter) noexcept {
    handle_.promise().waiter = waiter;
    return handle_;
  }
  T await_resume() { return handle_.promise().take(); }

  /// For the outermost task: starts it; done() later reports whether it is over. take() rethrows what it threw.
  void start() { handle_.resume(); }
  bool done() const { return handle_.done(); }
  T take() { return handle_.promise().take(); }

 private:
  Handle handle_;
};

namespace detail {
template <class T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}
}  // namespace detail

}  // namespace kvcts::supervisor
