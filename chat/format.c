/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif

#include "chat/format.h"

#include <string.h>

#define THINK          .think = { "<think>" }, .answer = { "</think>" }
#define BAR            "\xef\xbd\x9c" /* U+FF5C */
#define LOW            "\xe2\x96\x81" /* U+2581 */
#define DSML           BAR "DSML" BAR
#define DS(name)       "<" BAR name BAR ">"
#define DS_CALLS_BEGIN DS("tool" LOW "calls" LOW "begin")
#define DS_CALLS_END   DS("tool" LOW "calls" LOW "end")
#define DS_CALL_BEGIN  DS("tool" LOW "call" LOW "begin")
#define DS_CALL_END    DS("tool" LOW "call" LOW "end")
#define DS_SEP         DS("tool" LOW "sep")
#define INVOKES(open, close) \
    "%{<" open "invoke name=\"%N\">%(<" open "parameter name=\"%K\"%S>%V</" close \
    "parameter>%)</" close "invoke>%}"
#define FUNCTIONS "%{<function=%N>%(<parameter=%K>%V</parameter>%)</function>%}"

/* The first row that fits is taken, so special formats stand above general ones. */
static const struct fmt rows[] = {
    { .name = "gpt-oss",
        .has = { "<|channel|>", "functions." },
        .think = { "<|channel|>analysis<|message|>" },
        .answer = { "<|end|>" },
        .call = { "<|channel|>commentary to=functions.%N<|message|>%A",
            "<|channel|>analysis to=functions.%N<|message|>%A",
            "<|start|>assistant to=functions.%N<|message|>%A",
            "^to=functions.%N<|message|>%A" },
        .drop = { "<|start|>assistant", "<|channel|>final<|message|>",
            "<|channel|>commentary<|message|>", "<|end|>", "<|return|>", "<|call|>" },
        .flags = FMT_LOOSE },
    { .name = "gemma4",
        .has = { "<|tool_call>call:" },
        .think = { "<|channel>thought" },
        .answer = { "<channel|>" },
        .call = { "<|tool_call>call:%N{%G<tool_call|>" } },
    { .name = "deepseek-v3.2",
        .has = { DSML, "function_calls>" },
        THINK,
        .call = { "<" DSML
                  "function_calls>" INVOKES(DSML, DSML) "</" DSML "function_calls>" } },
    { .name = "deepseek-v4",
        .has = { DSML, "tool_calls>" },
        THINK,
        .call = { "<" DSML "tool_calls>" INVOKES(DSML, DSML) "</" DSML "tool_calls>" } },
    { .name = "deepseek-v3",
        .has = { DS_SEP, "```json" },
        THINK,
        .call = { DS_CALLS_BEGIN "%{" DS_CALL_BEGIN "function" DS_SEP
                                 "%N```json%A```%_" DS_CALL_END "%}" DS_CALLS_END } },
    { .name = "deepseek-v3.1",
        .has = { DS_SEP },
        THINK,
        .call = { DS_CALLS_BEGIN
            "%{" DS_CALL_BEGIN "%N" DS_SEP "%A" DS_CALL_END "%}" DS_CALLS_END } },
    { .name = "kimi-k2",
        .has = { "<|tool_call_argument_begin|>" },
        THINK,
        .call = { "<|tool_calls_section_begin|>%{<|tool_call_begin|>%N<|tool_call_argument_begin|>"
                  "%A<|tool_call_end|>%}<|tool_calls_section_end|>" },
        .flags = FMT_KIMI_ID },
    { .name = "minimax-m2",
        .has = { "<minimax:tool_call>" },
        THINK,
        .call = { "<minimax:tool_call>" INVOKES("", "") "</minimax:tool_call>" } },
    { .name = "glm-4.5",
        .has = { "<arg_key>" },
        THINK,
        .call = { "<tool_call>%N%(<arg_key>%K</arg_key>%_<arg_value>%V</arg_value>%)</tool_call>" } },
    { .name = "seed-oss",
        .has = { "<seed:tool_call>" },
        .think = { "<seed:think>" },
        .answer = { "</seed:think>" },
        .call = { "<seed:tool_call>" FUNCTIONS "</seed:tool_call>" },
        .flags = FMT_TRIM_NL },
    { .name = "qwen3-coder",
        .has = { "<function=", "<parameter=" },
        THINK,
        .call = { "<tool_call>" FUNCTIONS "</tool_call>",
            "<function=%N>%(<parameter=%K>%V</parameter>%)</function>" },
        .flags = FMT_TRIM_NL },
    { .name = "functionary",
        .has = { "<function=" },
        .call = { "<function=%N>%A</function>" },
        .drop = { "<|eom_id|>" } },
    { .name = "mistral",
        .has = { "[TOOL_CALLS]" },
        .think = { "[THINK]" },
        .answer = { "[/THINK]" },
        .call = { "[TOOL_CALLS]%o%N[ARGS]%A" },
        .flags = FMT_LOOSE | FMT_SHORT_ID },
    { .name = "cohere",
        .has = { "<|START_ACTION|>" },
        .think = { "<|START_THINKING|>" },
        .answer = { "<|END_THINKING|>" },
        .call = { "<|START_ACTION|>%O<|END_ACTION|>" },
        .drop = { "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>",
            "<|END_TEXT|>" } },
    { .name = "lfm2",
        .has = { "<|tool_call_start|>" },
        .or_has = "<|tool_list_start|>",
        THINK,
        .call = { "<|tool_call_start|>%P<|tool_call_end|>" } },
    { .name = "olmo3",
        .has = { "<function_calls>" },
        THINK,
        .call = { "<function_calls>%P</function_calls>" } },
    { .name = "granite3",
        .has = { "<|tool_call|>" },
        .lacks = "<|tool_response|>",
        .think = { "Here is my thought process:", "Here's my thought process:" },
        .answer = { "Here is my response:", "Here's my response:" },
        .call = { "<|tool_call|>%O", "<tool_call>%O" } },
    { .name = "phi4-mini",
        .has = { "<|tool|>" },
        .call = { "functools%O", "<|tool_call|>%O<|/tool_call|>", "<|tool_call|>%O" } },
    { .name = "internlm2",
        .has = { "<|plugin|>" },
        .call = { "<|action_start|>%_<|plugin|>%O<|action_end|>" } },
    { .name = "tool-calls-tag",
        .has = { "<tool_calls>" },
        THINK,
        .call = { "<tool_calls>%O</tool_calls>" } },
    { .name = "nemotron-2",
        .has = { "<TOOLCALL>" },
        THINK,
        .call = { "<TOOLCALL>%O</TOOLCALL>" } },
    { .name = "longcat",
        .has = { "<longcat_tool_call>" },
        .think = { "<longcat_think>" },
        .answer = { "</longcat_think>" },
        .call = { "<longcat_tool_call>%O</longcat_tool_call>" } },
    { .name = "hermes",
        .has = { "<tool_call>" },
        THINK,
        .call = { "<tool_call>%O</tool_call>" } },
    { .name = "llama4",
        .has = { "<|header_start|>" },
        .call = { "<|python_start|>%P<|python_end|>", "^%P" },
        .drop = { "<|python_end|>" } },
    { .name = "llama3",
        .has = { "<|start_header_id|>", "parameters" },
        .call = { "<|python_tag|>%O", "^%O" },
        .drop = { "<|eom_id|>" } },
    { .name = "think", .has = { "<think>" }, THINK },
};

const struct fmt *
fmt_at(size_t i)
{
    return i < sizeof(rows) / sizeof(rows[0]) ? &rows[i] : NULL;
}

const struct fmt *
fmt_named(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

static int
mark_holds(const char *mark, const char *text, size_t bytes)
{
    return mark != NULL && memmem(mark, strlen(mark), text, bytes) != NULL;
}

int
fmt_holds(const struct fmt *f, const char *text, size_t bytes)
{
    int yes = 0;

    if (bytes == 0)
        return 0;
    for (size_t i = 0; i < FMT_MARKS; i++)
        yes |= mark_holds(f->think[i], text, bytes) | mark_holds(f->answer[i], text, bytes);
    for (size_t i = 0; i < FMT_CALLS; i++) {
        yes |= mark_holds(f->call[i], text, bytes);
        if (f->call[i] != NULL && strstr(f->call[i], "%G") != NULL)
            yes |= mark_holds(FMT_QUOTE, text, bytes);
    }
    for (size_t i = 0; i < FMT_DROPS; i++)
        yes |= mark_holds(f->drop[i], text, bytes);
    return yes;
}

static int
holds(const char *text, size_t bytes, const char *what)
{
    return memmem(text, bytes, what, strlen(what)) != NULL;
}

const struct fmt *
fmt_of_template(const char *text, size_t bytes)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct fmt *f = &rows[i];

        if (f->or_has != NULL && holds(text, bytes, f->or_has))
            return f;
        if (holds(text, bytes, f->has[0]) &&
            (f->has[1] == NULL || holds(text, bytes, f->has[1])) &&
            (f->lacks == NULL || !holds(text, bytes, f->lacks)))
            return f;
    }
    return NULL;
}
