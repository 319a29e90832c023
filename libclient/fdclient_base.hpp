/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Errors and ranges of fdclient.hpp, which includes this. */
#ifndef FDD_LIBCLIENT_FDCLIENT_BASE_HPP
#define FDD_LIBCLIENT_FDCLIENT_BASE_HPP

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>

#include "fdclient.h"

namespace fdc
{

/* What the daemon or the library refused, or why a request ended early. what() is a
 * sentence; record() has a refused parameter, its value and the bound. */
class Error : public std::runtime_error
{
  public:
    explicit Error(int status, const std::string &text = "")
        : std::runtime_error(!text.empty() ? text
                                           : std::string(fdc_status_name(status)) + ": " +
                                                 fdc_strerror(status))
    {
        record_.code = status;
    }
    explicit Error(const fdc_error &record)
        : std::runtime_error(sentence(record)), record_(record)
    {
    }
    Error(int status, const fdc_open_error &e) : Error(status, e.text)
    {
        record_.retry_after_ms = e.retry_after_ms;
        os_error_ = e.os_error;
    }
    int status() const noexcept { return record_.code; }
    const char *name() const noexcept { return fdc_status_name(record_.code); }
    /* The parameter, "temperature", or "". */
    const char *detail() const noexcept
    {
        return record_.detail ? fdc_detail_name(record_.detail) : "";
    }
    bool retryable() const noexcept { return fdc_is_retryable(record_.code) != 0; }
    std::uint32_t retry_after_ms() const noexcept { return record_.retry_after_ms; }
    int os_error() const noexcept { return os_error_; } /* errno of E_CONNECT, or 0 */
    const fdc_error &record() const noexcept { return record_; }

  private:
    static std::string sentence(const fdc_error &record)
    {
        char buf[512];
        return fdc_error_text(&record, buf, sizeof(buf));
    }
    fdc_error record_ = {};
    int os_error_ = 0;
};

inline int check(int rc)
{
    if (rc < 0)
        throw Error(rc);
    return rc;
}

/* Calls next(value) until it returns false: what a range-based for goes over, once. */
template <class Next, class Value> class Range
{
  public:
    struct End {
    };
    class Iterator
    {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = Value;
        using difference_type = std::ptrdiff_t;
        using pointer = const Value *;
        using reference = const Value &;
        explicit Iterator(Next next) : next_(next) { more_ = next_(value_); }
        reference operator*() const noexcept { return value_; }
        pointer operator->() const noexcept { return &value_; }
        Iterator &operator++()
        {
            more_ = next_(value_);
            return *this;
        }
        friend bool operator!=(const Iterator &i, End) noexcept { return i.more_; }
        friend bool operator==(const Iterator &i, End) noexcept { return !i.more_; }

      private:
        Next next_;
        Value value_{};
        bool more_;
    };
    explicit Range(Next next) noexcept : next_(next) {}
    Iterator begin() const { return Iterator(next_); }
    End end() const noexcept { return {}; }

  private:
    Next next_;
};

} /* namespace fdc */

#endif
