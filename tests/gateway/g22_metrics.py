# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""The metrics that vLLM's Grafana dashboards read exist and count."""
import re

from wire import ask, wait_for

# of vLLM's grafana.json, performance_statistics.json and query_statistics.json
ASKED = """vllm:e2e_request_latency_seconds_bucket vllm:e2e_request_latency_seconds_sum
vllm:e2e_request_latency_seconds_count vllm:prompt_tokens_total vllm:generation_tokens_total
vllm:inter_token_latency_seconds_bucket vllm:inter_token_latency_seconds_sum
vllm:inter_token_latency_seconds_count vllm:num_requests_running vllm:num_requests_waiting
vllm:time_to_first_token_seconds_bucket vllm:time_to_first_token_seconds_sum
vllm:time_to_first_token_seconds_count vllm:kv_cache_usage_perc vllm:request_prompt_tokens_bucket
vllm:request_generation_tokens_bucket vllm:request_success_total vllm:request_queue_time_seconds_sum
vllm:request_prefill_time_seconds_sum vllm:request_decode_time_seconds_sum
vllm:request_max_num_generation_tokens_bucket vllm:request_max_num_generation_tokens_sum
vllm:request_max_num_generation_tokens_count vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total
vllm:num_preemptions_total vllm:cache_config_info""".split()


def metrics():
    status, h, raw = ask("/metrics")
    assert status == 200 and h["content-type"].startswith("text/plain; version=0.0.4"), h
    text = raw.decode()
    out = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            m = re.fullmatch(r'([a-zA-Z_:][\w:]*)(\{[^}]*\})? (\S+)', line)
            assert m, line
            assert m[1] + (m[2] or "") not in out, f"twice: {line}"
            out[m[1] + (m[2] or "")] = float(m[3])
    return out


def total(m, name, *labels):
    return sum(v for k, v in m.items() if (k == name or k.startswith(name + "{")) and all(x in k for x in labels))


def main():
    before = metrics()
    names = {k.split("{")[0] for k in before}
    assert before["fdd_http_daemon_metrics"] == 1, before
    assert not set(ASKED) - names, set(ASKED) - names
    assert any(k.startswith("vllm:num_requests_running{") and 'model_name="demo"' in k for k in before)
    for n in (5, 7):
        assert ask("/v1/completions", {"prompt": "In the beginning", "max_tokens": n, "ignore_eos": True})[0] == 200
    grown = lambda m, name, *labels: total(m, name, *labels) - total(before, name, *labels)
    wait_for("the daemon counts", lambda: grown(metrics(), "vllm:request_success_total") == 2)
    m = metrics()
    assert grown(m, "vllm:generation_tokens_total") == 12, m
    assert grown(m, "vllm:request_success_total", 'finished_reason="length"') == 2
    assert grown(m, "vllm:time_to_first_token_seconds_count") == 2
    assert grown(m, "vllm:inter_token_latency_seconds_count") == 10
    assert grown(m, "vllm:e2e_request_latency_seconds_count") == 2
    assert grown(m, "fdd_generation_tokens_total") == 12 and grown(m, "fdd_http_output_tokens_total") == 12
    assert grown(m, "http_requests_total", 'handler="/v1/completions"') == 2
    assert 0 <= total(m, "vllm:kv_cache_usage_perc") <= 1
    assert ask("/load")[2] == {"server_load": 0}
    print(f"{len(m)} samples, {len(ASKED)} names of vLLM's dashboards")


main()
