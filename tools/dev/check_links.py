#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Check the links of the tree's documents. Usage: check_links.py [FILE ...]

Of each *.md (all that git or the tarball has): a [text](target) names a file or a
heading that exists; a path in running text or in backticks, such as doc/control.md
or tests/sys/041-program.sh, is a file; a page of doc/ lists its headings first.
Exit 1 and a line for each that is wrong."""
import os, re, sys

SRC = os.environ.get('FDD_SRC') or os.path.realpath(os.path.join(os.path.dirname(__file__), '../..'))
PATH = re.compile(r'(?<![\w./*{-])((?:[A-Za-z0-9_.-]+/)+[A-Za-z0-9_-]+\.(?:md|tsv|h|c|cu|cuh|sh|py|pml|ini|service))(?![\w*{-]|\.\w)')
MADE = ('build', 'etc', 'run', 'tmp', 'usr', 'var', 'bundle')


def pages():
    if len(sys.argv) > 1:
        return sys.argv[1:]
    found = []
    for folder, names, files in os.walk(SRC):
        names[:] = [n for n in names if not n.startswith(('.', 'build', 'autom4te', 'bundle'))]
        found += [os.path.join(folder, f) for f in files if f.endswith('.md')]
    return sorted(found)


def anchor(title):
    """A heading's anchor as forges make it: lower case, no punctuation, blanks to hyphens."""
    title = re.sub(r'[`*]', '', title).strip().lower()
    return re.sub(r'[^\w\- ]', '', title).replace(' ', '-')


def headings(text):
    text = re.sub(r'^```.*?^```', '', text, flags=re.S | re.M)
    return re.findall(r'^(#+) (.*)$', text, re.M)


def check(page):
    with open(page, encoding='utf-8') as f:
        text = f.read()
    name, folder, bad = os.path.relpath(page, SRC), os.path.dirname(page), []
    anchors = {anchor(t) for _, t in headings(text)}
    prose = re.sub(r'^```.*?^```', '', text, flags=re.S | re.M)
    for target in re.findall(r'\]\(([^)\s]+)\)', prose):
        if target.startswith(('http://', 'https://', 'mailto:')):
            continue
        path, _, part = target.partition('#')
        if path and not os.path.exists(os.path.join(folder, path)):
            bad.append(f'link to {target}: no such file')
        elif not path and part not in anchors:
            bad.append(f'link to #{part}: no such heading')
    for path in sorted(set(PATH.findall(prose))):
        if path.split('/')[0] in MADE or re.search('FAMILY|NAME', path):
            continue
        if not any(os.path.exists(os.path.join(d, path)) for d in (SRC, folder,
                os.path.join(SRC, 'tests'), os.path.join(SRC, 'daemon'), os.path.join(SRC, 'kernels'))):
            bad.append(f'names {path}, which is not there')
    if name.startswith('doc/') and name != 'doc/GLOSSARY.md':
        listed = re.findall(r'^- \[.*?\]\(#(.*?)\)', text, re.M)
        want = [anchor(t) for level, t in headings(text) if level == '##']
        if listed != want:
            bad.append('its list of contents is not its headings: ' +
                ', '.join(sorted(set(listed) ^ set(want))) or 'their order')
    return [f'{name}: {b}' for b in bad]


problems = [b for page in pages() for b in check(page)]
print('\n'.join(problems), end='\n' if problems else '')
sys.exit(1 if problems else 0)
