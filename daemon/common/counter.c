#include "config.h"

#include "daemon/common/counter.h"

static const struct cnt_row cnt_rows[] = {
#define CNT_GATE(name, kind, unit, help)                                \
    { #name, unit, help, CNT_##kind, 0, offsetof(struct cnt_seg, g.name) },
#define CNT_WORKER(name, kind, unit, help)                              \
    { #name, unit, help, CNT_##kind, 1, offsetof(struct cnt_seg, w.name) },
#include "daemon/tbl/counters.h"
#undef CNT_GATE
#undef CNT_WORKER
};

size_t
cnt_count(void)
{
    return sizeof(cnt_rows) / sizeof(cnt_rows[0]);
}

const struct cnt_row *
cnt_row(size_t i)
{
    return i < cnt_count() ? &cnt_rows[i] : NULL;
}
