#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Renders templates with Jinja, set up as in transformers.

    reference.py CASES              write goldens: CASES is a file of cases (cases.txt)
    reference.py --with PROGRAM CASES...   compare PROGRAM TEMPLATE JSON with Jinja
    reference.py --with PROGRAM --templates FOLDER   the same for each *.jinja of a
                                    folder, with conversations of conversations.json
    reference.py --transformers ... the same with transformers' own environment

A case is "== NAME", lines of a template, "-- JSON" with the variables; the golden is
the rendered text, or "ERROR" where Jinja fails. Needs jinja2 3.1."""
import datetime, functools, json, os, subprocess, sys, tempfile
import jinja2, jinja2.ext
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {'generation'}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(['name:endgeneration'], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method('_body'), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters['tojson'] = tojson
    env.globals['raise_exception'] = raise_exception
    env.globals['strftime_now'] = lambda f: datetime.datetime.now().strftime(f)
    return env


ENV = environment()


@functools.lru_cache(maxsize=8)
def compiled(template):
    return ENV.from_string(template)


def render(template, variables):
    try:
        return compiled(template).render(**variables)
    except Exception as e:
        return 'ERROR ' + type(e).__name__ + ': ' + str(e)


def ours(program, template, variables):
    with tempfile.TemporaryDirectory() as d:
        t, j = os.path.join(d, 't'), os.path.join(d, 'j')
        with open(t, 'w', newline='') as f:
            f.write(template)
        with open(j, 'w') as f:
            f.write(json.dumps(variables, ensure_ascii=False))
        p = subprocess.run([program, t, j], capture_output=True)
        out = p.stdout.decode()
        return out if p.returncode == 0 else 'ERROR ' + out + p.stderr.decode()


def cases(path):
    """Yields (name, template, variables) of each case in a file."""
    name, lines = None, []
    with open(path, encoding='utf-8', newline='') as f:
        for line in f.read().split('\n'):
            if line.startswith('== '):
                name, lines = line[3:], []
            elif line.startswith('-- ') and name is not None:
                yield name, '\n'.join(lines), json.loads(line[3:])
                name = None
            elif name is not None:
                lines.append(line)


def same(a, b):
    return a == b or (a.startswith('ERROR') and b.startswith('ERROR'))


def compare(program, todo):
    n = bad = 0
    for name, template, variables in todo:
        want, got = render(template, variables), ours(program, template, variables)
        n += 1
        if not same(want, got):
            bad += 1
            print(f'{name}:\n  jinja {want[:600]!r}\n  ours  {got[:600]!r}')
    print(f'{n - bad} equal, {bad} not')
    return bad


def by_transformers():
    global compiled
    from transformers.utils import chat_template_utils
    compiled = chat_template_utils._compile_jinja_template


def main(args):
    if args[:1] == ['--transformers']:
        by_transformers()
        args = args[1:]
    if args[:1] == ['--with'] and args[2:3] == ['--templates']:
        folder = args[3]
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'conversations.json')) as f:
            talks = json.load(f)
        todo = ((f'{t} {i}', open(os.path.join(folder, t), newline='').read(), talk)
            for t in sorted(os.listdir(folder)) if t.endswith('.jinja') for i, talk in enumerate(talks))
        return compare(args[1], todo) != 0
    if args[:1] == ['--with']:
        return any([compare(args[1], cases(p)) for p in args[2:]])
    for path in args:
        with open(os.path.splitext(path)[0] + '.json', 'w') as f:
            f.write('[\n' + ',\n'.join(json.dumps([n, t, json.dumps(v, ensure_ascii=False), r if not
                (r := render(t, v)).startswith('ERROR') else None], ensure_ascii=False)
                for n, t, v in cases(path)) + '\n]\n')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
