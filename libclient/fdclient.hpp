/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * libfdclient for C++17: handles that free themselves, errors as exceptions.
 *
 *   fdc::Session fdd;
 *   fdc::Params p;
 *   p.max_new = 64;
 *   fdc::Request r = fdd.submit("In the beginning", p);
 *   for (std::string_view piece : r)
 *       std::cout << piece << std::flush;
 *
 * The rest is as in fdclient.h and fdclient(3): names and lifetimes of parameters,
 * timeouts in milliseconds (-1: no limit), threads, fork(). A Session outlives its
 * Requests. native() gives the handle for functions of C.
 */
#ifndef FDD_LIBCLIENT_FDCLIENT_HPP
#define FDD_LIBCLIENT_FDCLIENT_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fdclient.h"
#include "fdclient_base.hpp"

namespace fdc
{

/* The structs of C with their defaults. What they point to needs to live until submit()
 * returns. */
struct Params : fdc_params {
    Params() noexcept { fdc_params_init_sized(this, sizeof(fdc_params)); }
};
struct SubmitOpts : fdc_submit_opts {
    SubmitOpts() noexcept : fdc_submit_opts()
    {
        size = sizeof(fdc_submit_opts);
        submit_timeout_ms = -1; /* C's default does not wait for room */
    }
};
struct OpenOpts : fdc_open_opts {
    OpenOpts() noexcept : fdc_open_opts() { size = sizeof(fdc_open_opts); }
};

/* A request; its destruction cancels it if it is open. Its range is the pieces of text of
 * sample 0 (behind the prompt's, with FDC_F_PROMPT_TEXT), that of events() everything up
 * to DONE. A piece or an event is valid until the next. The error that ends a request is
 * thrown. */
class Request
{
    struct NextEvent {
        Request *req;
        int timeout_ms;
        bool operator()(fdc_event &ev) const { return req->next(ev, timeout_ms); }
    };
    struct NextPiece {
        Request *req;
        int timeout_ms;
        bool operator()(std::string_view &piece) const
        {
            fdc_event ev = FDC_EVENT_INIT;
            while (req->next(ev, timeout_ms))
                if ((ev.type == FDC_T_TEXT && ev.sample == 0) ||
                    ev.type == FDC_T_PROMPT_TEXT) {
                    piece = std::string_view(ev.text, ev.n);
                    return true;
                }
            return false;
        }
    };

  public:
    using Events = Range<NextEvent, fdc_event>;
    using Pieces = Range<NextPiece, std::string_view>;

    Request() noexcept = default;
    explicit Request(fdc_req_t *r) noexcept : r_(r) {}
    Request(Request &&other) noexcept : r_(std::exchange(other.r_, nullptr)) {}
    Request &operator=(Request &&other) noexcept
    {
        Request(std::move(other)).swap(*this);
        return *this;
    }
    ~Request() { fdc_req_free(r_); }
    void swap(Request &other) noexcept { std::swap(r_, other.r_); }
    explicit operator bool() const noexcept { return r_ != nullptr; }
    fdc_req_t *native() const noexcept { return r_; }

    void cancel() { check(fdc_cancel(r_)); }
    /* The next event; false after DONE. Throws the request's error, E_TIMEOUT, and with a
     * timeout of 0 E_AGAIN. */
    bool next(fdc_event &ev, int timeout_ms = -1)
    {
        ev.size = sizeof(ev);
        if (check(fdc_next(r_, &ev, timeout_ms)) == 0)
            return false;
        if (ev.type == FDC_T_ERROR)
            throw Error(*ev.error);
        return true;
    }
    Events events(int timeout_ms = -1) & { return Events({ this, timeout_ms }); }
    Pieces pieces(int timeout_ms = -1) & { return Pieces({ this, timeout_ms }); }
    Pieces::Iterator begin() { return pieces().begin(); }
    Pieces::End end() const noexcept { return {}; }
    /* The rest of the text; the timeout is for each piece. */
    std::string text(int timeout_ms = -1)
    {
        std::string all;
        for (std::string_view piece : pieces(timeout_ms))
            all += piece;
        return all;
    }

  private:
    fdc_req_t *r_ = nullptr;
};

class Session
{
  public:
    /* With reconnect_ms in opts it outlives a restart of the daemon. */
    explicit Session(fdc_open_opts opts = OpenOpts())
    {
        fdc_open_error e = {};
        e.size = sizeof(e);
        opts.ret_error = &e;
        const int rc = fdc_open(&opts, &s_);
        if (rc < 0)
            throw Error(rc, e);
    }
    Session(Session &&other) noexcept : s_(std::exchange(other.s_, nullptr)) {}
    Session &operator=(Session &&other) noexcept
    {
        std::swap(s_, other.s_);
        return *this;
    }
    ~Session() { fdc_close(s_); }
    fdc_t *native() const noexcept { return s_; }

    Request submit(std::string_view text, const fdc_params &params = Params(),
        fdc_submit_opts opts = SubmitOpts())
    {
        return submitted(opts, [&](fdc_req_t **r) {
            return fdc_submit_text(s_, text.data(), text.size(), &params, &opts, r);
        });
    }
    Request submit(const std::vector<std::uint32_t> &ids,
        const fdc_params &params = Params(), fdc_submit_opts opts = SubmitOpts())
    {
        return submitted(opts, [&](fdc_req_t **r) {
            return fdc_submit_ids(s_, ids.data(), ids.size(), &params, &opts, r);
        });
    }
    std::vector<std::uint32_t> tokenize(std::string_view text, std::uint32_t flags = 0,
        int timeout_ms = -1)
    {
        std::uint32_t *ids;
        std::size_t n;
        check(fdc_tokenize(s_, text.data(), text.size(), flags, &ids, &n, timeout_ms));
        std::unique_ptr<std::uint32_t[], void (*)(void *)> owner(ids, fdc_free);
        return std::vector<std::uint32_t>(ids, ids + n);
    }
    std::string detokenize(const std::vector<std::uint32_t> &ids, std::uint32_t flags = 0,
        int timeout_ms = -1)
    {
        char *text;
        std::size_t n;
        check(fdc_detokenize(s_, ids.data(), ids.size(), flags, &text, &n, timeout_ms));
        return owned(text, n);
    }
    std::string file(const char *name, int timeout_ms = -1)
    {
        char *bytes;
        std::size_t n;
        check(fdc_file(s_, name, &bytes, &n, timeout_ms));
        return owned(bytes, n);
    }
    struct fdc_info info(fdc_model_info *ret_model = nullptr, int timeout_ms = -1)
    {
        struct fdc_info i = {};
        i.size = sizeof(i);
        i.model = ret_model;
        if (ret_model != nullptr)
            ret_model->size = sizeof(*ret_model);
        check(::fdc_info(s_, &i, timeout_ms));
        return i;
    }
    std::uint64_t ping_ns(bool deep = false, int timeout_ms = -1)
    {
        std::uint64_t ns = 0;
        check(fdc_ping(s_, deep ? 1 : 0, &ns, timeout_ms));
        return ns;
    }
    /* For event loops: fdclient.h. dispatch() throws once the session is over. */
    int fd() const { return check(fdc_fd(s_)); }
    int dispatch() { return check(fdc_dispatch(s_)); }
    /* The handle of a request that can be read; NULL: none is open. */
    fdc_req_t *wait_any(int timeout_ms = -1)
    {
        fdc_req_t *r = nullptr;
        return check(fdc_wait_any(s_, &r, timeout_ms)) == 1 ? r : nullptr;
    }

  private:
    static std::string owned(char *bytes, std::size_t n)
    {
        std::unique_ptr<char[], void (*)(void *)> owner(bytes, fdc_free);
        return std::string(bytes, n);
    }
    template <class Submit> static Request submitted(fdc_submit_opts &opts, Submit call)
    {
        char text[512] = "";
        fdc_req_t *r = nullptr;
        opts.error_text = text;
        opts.error_text_bytes = sizeof(text);
        const int rc = call(&r);
        if (rc < 0)
            throw Error(rc, text);
        return Request(r);
    }
    fdc_t *s_ = nullptr;
};

} /* namespace fdc */

#endif
