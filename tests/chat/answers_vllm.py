# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Runs vLLM's parsers, from an unpacked wheel, on the answers of answers.py. Empty classes replace
their other imports (torch, pydantic models, the server).
Needs regex and partial-json-parser."""
import importlib, importlib.abc, importlib.machinery, importlib.util, json, os, sys, types

PACKAGES = ('vllm.parser', 'vllm.parser.engine', 'vllm.tool_parsers', 'vllm.reasoning')
ABSENT = ('vllm', 'transformers', 'openai', 'xgrammar', 'torch', 'mistral_common', 'openai_harmony',
    'prometheus_client', 'starlette', 'fastapi', 'numpy', 'pydantic')
TOOL_PARSERS = {
    'hermes': 'hermes_tool_parser.Hermes2ProToolParser',
    'deepseek-v3': 'deepseekv3_tool_parser.DeepSeekV3ToolParser',
    'deepseek-v3.1': 'deepseekv31_tool_parser.DeepSeekV31ToolParser',
    'llama3': 'llama_tool_parser.Llama3JsonToolParser',
    'llama4': 'llama4_pythonic_tool_parser.Llama4PythonicToolParser',
    'olmo3': 'olmo3_tool_parser.Olmo3PythonicToolParser',
    'lfm2': 'lfm2_tool_parser.Lfm2ToolParser',
    'phi4-mini': 'phi4mini_tool_parser.Phi4MiniJsonToolParser',
    'internlm2': 'internlm2_tool_parser.Internlm2ToolParser',
    'tool-calls-tag': 'jamba_tool_parser.JambaToolParser'}
ENGINES = {
    'qwen3-coder': 'qwen3.Qwen3Parser', 'glm-4.5': 'glm47_moe.Glm47MoeParser',
    'minimax-m2': 'minimax_m2.MinimaxM2Parser', 'deepseek-v3.2': 'deepseek_v32.DeepSeekV32Parser',
    'deepseek-v4': 'deepseek_v4.DeepSeekV4Parser', 'kimi-k2': 'kimi_k2.KimiK2Parser',
    'gemma4': 'gemma4.Gemma4Parser', 'seed-oss': 'seed_oss.SeedOssParser',
    'granite3': 'granite.GraniteParser'}


class AnyName(type):
    def __getattr__(cls, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return Empty


class Empty(metaclass=AnyName):
    """Replaces every absent class: stores its keyword arguments as attributes."""
    def __init__(self, *args, **kw):
        self.__dict__.update(kw)

    def __class_getitem__(cls, item):
        return cls

    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return None

    def __call__(self, *args, **kw):
        return args[0] if args else None


class Silent:
    def __getattr__(self, name):
        return lambda *args, **kw: None


class Absent(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        if name == 'init_logger':
            return lambda *args: Silent()
        if name.startswith('is_mistral'):
            return lambda *args: False
        if name.endswith('_SECONDS'):
            return 10.0
        if name == 'make_tool_call_id':
            return lambda *args, **kw: 'id'
        setattr(self, name, type(name, (Empty,), {}))
        return self.__dict__[name]


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path, target=None):
        at = os.path.join(self.folder, *name.split('.'))
        if name.split('.')[0] not in ABSENT:
            return None
        if name in PACKAGES:
            spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
            spec.submodule_search_locations = [at]
            return spec
        if name.rpartition('.')[0] in PACKAGES and os.path.exists(at + '.py'):
            return importlib.util.spec_from_file_location(name, at + '.py')
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass


class Vocabulary(dict):
    def get(self, key, default=None):
        return hash(key) % 100000

    def __getitem__(self, key):
        return hash(key) % 100000

    def __contains__(self, key):
        return True


class Tokenizer:
    all_special_ids, all_special_tokens = [], []

    def get_vocab(self):
        return Vocabulary()

    def encode(self, text, **kw):
        return []

    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return None


def parser(package, where):
    module, _, name = where.partition('.')
    return getattr(importlib.import_module(f'vllm.{package}.{module}'), name)


def calls_of(made):
    return [[c.function.name, json.loads(c.function.arguments or '{}')] for c in made.tool_calls or []]


def body_of(text):
    """The text without its reasoning, for which vLLM has another parser."""
    for end in ('</think>', '</seed:think>', '<channel|>', 'Here is my response: '):
        text = text.split(end, 1)[-1]
    return text.lstrip()


def ask(name, text, tools):
    if name in TOOL_PARSERS:
        made = parser('tool_parsers', TOOL_PARSERS[name])(Tokenizer(), None).extract_tool_calls(
            text, Empty(tools=None))
        return calls_of(made) if made.tools_called else []
    if name == 'minimax-m2':
        text = '</think>' + text
    return calls_of(parser('parser', ENGINES[name])(Tokenizer(), tools, chat_template_kwargs={
        'enable_thinking': False}).extract_tool_calls(text, Empty(tools=tools)))


def compare(folder, tools, answers):
    """Prints for each format how many answers with calls vLLM reads correctly."""
    sys.meta_path.insert(0, Finder(folder))
    param = importlib.import_module('vllm.entrypoints.openai.chat_completion.protocol').ChatCompletionToolsParam
    tools = [param(type='function', function=Empty(**t['function'])) for t in tools]
    for name in list(TOOL_PARSERS) + list(ENGINES):
        some = [a for a in answers if a[0] == name and a[5]]
        bad = []
        for a in some:
            got = ask(name, body_of(a[2]), tools)
            if got != [list(c) for c in a[5]]:
                bad.append((a[2], got))
        print(f'{name}: {len(some) - len(bad)} of {len(some)}')
        for text, got in bad[:1]:
            print(f'  {text!r}\n  {got!r}')
    return 0
