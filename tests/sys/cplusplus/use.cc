/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* fdclient.hpp against a daemon with the demo model. Usage: use SOCKET TEXT TEXT-OF-IDS:
 * what fdctl made of the same greedy request. Prints what was not as it should be. */
#include <fdclient.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <type_traits>

static_assert(!std::is_copy_constructible_v<fdc::Session>);
static_assert(!std::is_copy_assignable_v<fdc::Session>);
static_assert(std::is_nothrow_move_constructible_v<fdc::Session>);
static_assert(std::is_nothrow_move_assignable_v<fdc::Session>);
static_assert(!std::is_copy_constructible_v<fdc::Request>);
static_assert(std::is_nothrow_move_constructible_v<fdc::Request>);
static_assert(std::is_nothrow_move_assignable_v<fdc::Request>);
static_assert(std::is_base_of_v<std::runtime_error, fdc::Error>);

#define CHECK(x) \
    do { \
        if (!(x)) { \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #x); \
            std::exit(1); \
        } \
    } while (0)

static const char prompt[] = "In the beginning";

static fdc::Params greedy(std::uint32_t max_new)
{
    fdc::Params p;
    p.max_new = max_new;
    p.temperature = 0;
    p.flags |= FDC_F_IGNORE_EOS;
    return p;
}

template <class Call> static fdc::Error thrown(Call call)
{
    try {
        call();
    } catch (const std::runtime_error &e) {
        const auto *f = dynamic_cast<const fdc::Error *>(&e);
        CHECK(f != nullptr);
        return *f;
    }
    CHECK(!"an exception");
    return fdc::Error(0);
}

static void texts(fdc::Session &s, const std::string &want, const std::string &want_ids)
{
    std::string got;
    int n = 0;

    for (std::string_view piece : s.submit(prompt, greedy(24))) {
        got += piece;
        n++;
    }
    CHECK(got == want && n > 10);
    CHECK(s.submit(s.tokenize(prompt), greedy(24)).text(60000) == want);
    std::vector<std::uint32_t> ids;
    bool done = false;
    fdc::Request r = s.submit(prompt, greedy(24));
    for (const fdc_event &ev : r.events()) {
        CHECK(!done);
        if (ev.type == FDC_T_IDS)
            ids.insert(ids.end(), ev.ids, ev.ids + ev.n);
        done = ev.type == FDC_T_DONE;
        if (done)
            CHECK(ev.done->output_tokens == 24);
    }
    CHECK(done);
    CHECK(s.detokenize(ids) == want);
    std::string printed;
    for (std::uint32_t id : ids)
        printed += (printed.empty() ? "" : " ") + std::to_string(id);
    CHECK(printed == want_ids);
    fdc_event ev = FDC_EVENT_INIT;
    CHECK(!r.next(ev));
    r = s.submit(prompt, greedy(1)); /* frees the other */
    CHECK(r && !r.text().empty());
}

static void errors(fdc::Session &s, const char *path)
{
    fdc::Params p = greedy(4);

    p.temperature = 150;
    fdc::Error e = thrown([&] { s.submit(prompt, p).text(); });
    CHECK(e.status() == FDC_E_BAD_PARAM && std::strcmp(e.name(), "E_BAD_PARAM") == 0);
    CHECK(std::strcmp(e.detail(), "temperature") == 0 && !e.retryable());
    CHECK(std::strstr(e.what(), "temperature is 150, at most 100") != nullptr);
    CHECK(e.record().detail == FDC_D_TEMPERATURE);

    fdc::OpenOpts o;
    o.path = "/nonexistent/sock";
    e = thrown([&] { fdc::Session other(o); });
    CHECK(e.status() == FDC_E_CONNECT && e.os_error() == 2 && e.retryable());
    CHECK(std::strstr(e.what(), "/nonexistent/sock") != nullptr);

    e = thrown([&] { s.submit(std::string(std::size_t(1) << 24, 'x')); });
    CHECK(e.status() == FDC_E_ARENA && std::strstr(e.what(), "at most") != nullptr);
    fdc::Request r = s.submit(prompt, greedy(900));
    e = thrown([&] { r.text(0); });
    CHECK(e.status() == FDC_E_AGAIN);
    r.cancel();
    e = thrown([&] { r.text(); });
    CHECK(e.status() == FDC_E_CANCELLED);
    e = thrown([&] { fdc::Request().text(); });
    CHECK(e.status() == FDC_E_INVAL);
    o.path = path;
    fdc::Session one(o), two(std::move(one));
    CHECK(one.native() == nullptr && two.ping_ns(true) > 0);
    one = std::move(two);
    CHECK(one.ping_ns() > 0);
}

/* Two requests in a loop of poll(), told apart by their handles. */
static void loop(fdc::Session &s, const std::string &want)
{
    fdc::Request r[2] = { s.submit(prompt, greedy(24)), s.submit(prompt, greedy(24)) };
    std::string got[2];
    int open = 2;

    while (open > 0) {
        while (s.dispatch() > 0) {
            fdc_req_t *h = s.wait_any(0);
            int i = h == r[1].native();
            fdc_event ev = FDC_EVENT_INIT;
            try {
                while (r[i].next(ev, 0)) {
                    if (ev.type == FDC_T_TEXT)
                        got[i].append(ev.text, ev.n);
                    open -= ev.type == FDC_T_DONE;
                }
            } catch (const fdc::Error &e) {
                CHECK(e.status() == FDC_E_AGAIN);
            }
        }
        struct pollfd p = { s.fd(), POLLIN, 0 };
        CHECK(open == 0 || poll(&p, 1, 60000) == 1);
    }
    CHECK(got[0] == want && got[1] == want);
    CHECK(s.wait_any() == nullptr);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    fdc::OpenOpts o;
    o.path = argv[1];
    o.name = "use.cc";
    fdc::Session s(o);
    fdc_model_info m = {};
    CHECK(s.info(&m).max_inflight > 1 && m.vocab == 4096);
    texts(s, argv[2], argv[3]);
    errors(s, argv[1]);
    loop(s, argv[2]);
    for (std::string_view piece : s.submit(prompt, greedy(900))) {
        CHECK(!piece.empty());
        break; /* which cancels it */
    }
    std::puts("ok");
    std::fflush(stdout);
    /* until the test has seen that nothing is under way */
    return std::getchar() == EOF ? 0 : 1;
}
