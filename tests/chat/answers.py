#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Answers in each model's output format, and their content, reasoning and calls.

    answers.py N >FILE            N answers of each format, from a fixed seed; answers.jsonl
                                  is the output for N = 8
    answers.py --vllm FOLDER N    how many of them vLLM's parsers (FOLDER: an unpacked wheel)
                                  read correctly; torch is not needed

A line is a list: format, end of the prompt, text, content, reasoning, calls as
[name, arguments]. Blanks around content and reasoning are not compared: formats put
line ends there. The formats are taken from the models' own chat templates."""
import json, random, sys

TOOLS = [{'type': 'function', 'function': {'name': n, 'description': 'd', 'parameters': {
    'type': 'object', 'properties': p}}} for n, p in [
    ('get_weather', {'city': {'type': 'string'}, 'days': {'type': 'integer'},
        'exact': {'type': 'boolean'}, 'language': {'type': ['string', 'null']}}),
    ('search-web', {'query': {'type': 'string'}, 'limit': {'type': 'integer'},
        'score': {'type': 'number'}, 'tags': {'type': 'array'}, 'filter': {'type': 'object'}}),
    ('now', {})]]
STRINGS = ['Tokyo', 'São Paulo', 'a "quoted" name', 'two\nlines', 'C:\\temp\\x', '<b>bold</b>', '{"a": [1]}',
    "it's", '東京 😀', 'x' * 70, '5', 'true', 'a, b; c', '</', '[1]', '<tool', '```', '', ' pad ', '\t']
PROSE = ['Let me see.', 'I will look it up:', 'The answer is 4 < 5 and 7 > 2.', 'Use a[0] and {x}; done.',
    'Zeile 1\n\nZeile 2', 'naïve café 😀', 'if (a<b) return [];', 'so <b>this</b> is it']


def value(r, schema, plain):
    t = schema.get('type')
    t = r.choice(t) if isinstance(t, list) else t
    if t == 'string':
        s = r.choice(STRINGS)
        return s if not plain else s.replace('\\', '/').strip() or 'x'
    if t == 'integer':
        return r.choice([0, 1, -7, 12345678901234])
    if t == 'number':
        return r.choice([0.5, -2.25, 1e+20])
    if t == 'boolean':
        return r.choice([True, False])
    if t == 'null':
        return None
    if t == 'array':
        return [r.choice(['a', 'b"c', 1, 2.5, True, None, ['n'], {'k': 'v'}]) for _ in range(r.randrange(4))]
    return {r.choice(['k', 'long key', 'z-1']): r.choice(['v', 3, False, None, {'in': [1, {}]}])}


def call(r, plain, python):
    f = r.choice(TOOLS)['function']
    if python:
        f = r.choice([t['function'] for t in TOOLS if '-' not in t['function']['name']])
    props = list(f['parameters']['properties'].items())
    r.shuffle(props)
    args = {k: value(r, p, plain) for k, p in props[:r.randrange(len(props) + 1)]}
    # for a type of string or null, tags cannot tell the string "null" from null
    return f['name'], {k: v for k, v in args.items() if not (plain and k == 'language' and v in ('5', 'true'))}


def dumps(x, r=None):
    if r is not None and r.random() < .3:
        return json.dumps(x, ensure_ascii=False, indent=2)
    return json.dumps(x, ensure_ascii=r is not None and r.random() < .2)


def obj(c, r, key='arguments'):
    return dumps({'name': c[0], key: c[1]}, r)


def raw(v):
    return v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)


def py(v):
    return repr(v)


def py_call(c):
    return c[0] + '(' + ', '.join(f'{k}={py(v)}' for k, v in c[1].items()) + ')'


def gemma(v):
    if isinstance(v, dict):
        return '{' + ','.join(f'{k}:{gemma(x)}' for k, x in v.items()) + '}'
    if isinstance(v, list):
        return '[' + ','.join(map(gemma, v)) + ']'
    return f'<|"|>{v}<|"|>' if isinstance(v, str) else json.dumps(v)


def invokes(calls, dsml, kind):
    out = ''
    for n, a in calls:
        out += f'<{dsml}invoke name="{n}">\n'
        for k, v in a.items():
            mark = f' string="{"true" if isinstance(v, str) else "false"}"' if kind else ''
            out += f'<{dsml}parameter name="{k}"{mark}>{raw(v)}</{dsml}parameter>\n'
        out += f'</{dsml}invoke>\n'
    return out


def functions(c):
    return f'<function={c[0]}>\n' + ''.join(f'<parameter={k}>\n{raw(v)}\n</parameter>\n'
        for k, v in c[1].items()) + '</function>'


def glm(c):
    return c[0] + '\n' + ''.join(f'<arg_key>{k}</arg_key>\n<arg_value>{raw(v)}</arg_value>\n' for k, v in c[1].items())


DS = lambda s: '<｜' + s.replace(' ', '▁') + '｜>'
LIST = lambda calls, r, key='arguments': '[' + ', '.join(obj(c, r, key) for c in calls) + ']'
# name: (marks before and after the reasoning, function that writes the calls, letters of features).
# p: values are written without escapes; y: function names must be valid in Python; e: the answer ends
# after its calls; b: an answer has content or calls, not both; x: no reasoning.
T = ('<think>\n', '\n</think>\n\n')
FORMATS = {
    'hermes': (T, lambda c, r: '\n'.join(f'<tool_call>\n{obj(x, r)}\n</tool_call>' for x in c), ''),
    'longcat': (('<longcat_think>', '</longcat_think>'), lambda c, r: ''.join(
        f'<longcat_tool_call>{obj(x, r)}</longcat_tool_call>' for x in c), ''),
    'tool-calls-tag': (T, lambda c, r: f'<tool_calls>{LIST(c, r)}</tool_calls>', ''),
    'qwen3-coder': (T, lambda c, r: '\n'.join(f'<tool_call>\n{functions(x)}\n</tool_call>' for x in c), 'p'),
    'seed-oss': (('<seed:think>', '</seed:think>'), lambda c, r: '<seed:tool_call>\n' +
        '\n'.join(functions(x) for x in c) + '\n</seed:tool_call>', 'p'),
    'glm-4.5': (T, lambda c, r: '\n'.join(f'<tool_call>{glm(x)}</tool_call>' for x in c), 'p'),
    'minimax-m2': (T, lambda c, r: '<minimax:tool_call>\n' + invokes(c, '', 0) + '</minimax:tool_call>', 'p'),
    'deepseek-v3': (T, lambda c, r: DS('tool calls begin') + '\n'.join(DS('tool call begin') + 'function' +
        DS('tool sep') + x[0] + '\n```json\n' + dumps(x[1], r) + '\n```' + DS('tool call end') for x in c) +
        DS('tool calls end'), ''),
    'deepseek-v3.1': (T, lambda c, r: DS('tool calls begin') + ''.join(DS('tool call begin') + x[0] +
        DS('tool sep') + dumps(x[1], r) + DS('tool call end') for x in c) + DS('tool calls end'), ''),
    'deepseek-v3.2': (T, lambda c, r: '<｜DSML｜function_calls>\n' + invokes(c, '｜DSML｜', 1) +
        '</｜DSML｜function_calls>', 'p'),
    'deepseek-v4': (T, lambda c, r: '<｜DSML｜tool_calls>\n' + invokes(c, '｜DSML｜', 1) + '</｜DSML｜tool_calls>', 'p'),
    'kimi-k2': (T, lambda c, r: '<|tool_calls_section_begin|>' + ''.join(
        f'<|tool_call_begin|>functions.{x[0]}:{i}<|tool_call_argument_begin|>{dumps(x[1], r)}<|tool_call_end|>'
        for i, x in enumerate(c)) + '<|tool_calls_section_end|>', ''),
    'mistral': (('[THINK]', '[/THINK]'), lambda c, r: ('[TOOL_CALLS]' + LIST(c, r)) if r.random() < .5 else
        ''.join(f'[TOOL_CALLS]{x[0]}[ARGS]{dumps(x[1], r)}' for x in c), 'e'),
    'cohere': (('<|START_THINKING|>', '<|END_THINKING|>'), lambda c, r: '<|START_ACTION|>[\n' + ',\n'.join(
        '    ' + json.dumps({'tool_call_id': str(i), 'tool_name': x[0], 'parameters': x[1]})
        for i, x in enumerate(c)) + '\n]<|END_ACTION|>', ''),
    'functionary': (None, lambda c, r: ''.join(f'<function={x[0]}>{dumps(x[1], r)}</function>' for x in c), 'e'),
    'granite3': (('Here is my thought process: ', ' Here is my response: '),
        lambda c, r: r.choice(['<|tool_call|>', '<tool_call>']) + LIST(c, r), 'e'),
    'phi4-mini': (None, lambda c, r: 'functools' + LIST(c, r), 'e'),
    'internlm2': (None, lambda c, r: '<|action_start|><|plugin|>' + obj(c[0], r, 'parameters') + '<|action_end|>', '1'),
    'lfm2': (T, lambda c, r: '<|tool_call_start|>[' + ', '.join(map(py_call, c)) + ']<|tool_call_end|>', 'y'),
    'olmo3': (T, lambda c, r: '<function_calls>' + '\n'.join(map(py_call, c)) + '</function_calls>', 'y'),
    'llama4': (None, lambda c, r: '[' + ', '.join(map(py_call, c)) + ']', 'yb'),
    'llama3': (None, lambda c, r: r.choice(['<|python_tag|>', '']) + obj(c[0], r, 'parameters') +
        ''.join('; ' + obj(x, r, 'parameters') for x in c[1:]), 'b'),
    'gemma4': (('<|channel>thought\n', '\n<channel|>'), lambda c, r: ''.join(
        f'<|tool_call>call:{x[0]}{gemma(x[1])}<tool_call|>' for x in c), ''),
    'gpt-oss': (('<|channel|>analysis<|message|>', '<|end|><|start|>assistant'), lambda c, r: ''.join(
        f'<|channel|>commentary to=functions.{c[0][0]} <|constrain|>json<|message|>{json.dumps(c[0][1])}<|call|>'), '1h'),
    'think': (T, None, ''),
    'nemotron-2': (T, lambda c, r: f'<TOOLCALL>{LIST(c, r)}</TOOLCALL>', ''),
    # MiniMax-M1: one call after another between the marks
    'tool-calls-tag lines': (T, lambda c, r: '<tool_calls>\n' + '\n'.join(obj(x, r) for x in c) + '\n</tool_calls>', ''),
}


def answer(name, r):
    think, calls, how = FORMATS[name]
    content = ' '.join(r.choice(PROSE) for _ in range(r.randrange(3)))
    reasoning = ' '.join(r.choice(PROSE) for _ in range(1 + r.randrange(3))) if think and r.random() < .6 else ''
    some = [call(r, 'p' in how, 'y' in how) for _ in range(r.randrange(4))] if calls else []
    some = some[:1] if '1' in how else some
    if 'b' in how and some:
        content = ''
    if not some and not content:
        content = r.choice(PROSE)
    text, prompt = '', ''
    if reasoning:
        text = think[0] + reasoning + think[1]
        if name != 'gpt-oss' and r.random() < .5:
            prompt, text = think[0], text[len(think[0]):]
    if 'h' in how and content:
        text += '<|channel|>' + ('commentary' if some else 'final') + '<|message|>' + content + \
            ('<|end|><|start|>assistant' if some else '<|return|>')
    else:
        text += content
    if some:
        text += '\n' if content and 'h' not in how else ''
        text += calls(some, r)
    return [name.split()[0], prompt, text, content, reasoning, some]


def answers(n):
    r = random.Random(20261123)
    for name in FORMATS:
        for _ in range(n):
            yield answer(name, r)


def main(args):
    if args[:1] == ['--vllm']:
        import answers_vllm
        return answers_vllm.compare(args[1], TOOLS, list(answers(int(args[2]))))
    print(json.dumps(TOOLS))
    for a in answers(int(args[0])):
        print(json.dumps(a, ensure_ascii=False))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
