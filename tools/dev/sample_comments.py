#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Print a random sample of the tree's comments and messages, without their context.

Usage: sample_comments.py [-n N] [--seed TEXT] [FOLDER...]

For each folder with sources: N (10) comments and N messages, each with its file
and line; a comment after code with that code. Messages are string literals of at least
three words that programs print, log or answer, and the failure messages of tests. The
seed is the commit's hash unless --seed is given, so that a sample can be printed again.
"""
import argparse
import collections
import pathlib
import random
import re
import subprocess

SOURCES = (".c", ".h", ".cu", ".cuh")
SCRIPTS = (".sh", ".py")
COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"(?:\s*"((?:[^"\\\n]|\\.)*)")*', re.S)


def git(*args):
    """Output of a git command in the tree."""
    here = pathlib.Path(__file__).resolve().parent
    return subprocess.run(["git", "-C", str(here), *args], check=True, text=True,
                          capture_output=True).stdout


def folder(path):
    """Two levels at most, as in check_words.sh."""
    return "/".join(path.split("/")[:-1][:2])


def words(text):
    """Number of words."""
    return len(re.findall(r"[A-Za-z]{2,}", text))


def line_of(text, at):
    """Line number of an offset."""
    return text.count("\n", 0, at) + 1


def of_source(path, text):
    """(kind, line, text) of comments and string literals of C or CUDA."""
    blank = text
    for m in COMMENT.finditer(text):
        said = re.sub(r"\n\s*\*?", " ", m.group(1))
        said = re.sub(r"\s+", " ", said).strip(" *-")
        code = text[text.rfind("\n", 0, m.start()) + 1:m.start()].strip()
        if words(said) >= 4 and "SPDX" not in said:
            yield "comment", line_of(text, m.start()), f"{code} /* {said} */" if code else said
        blank = blank[:m.start()] + re.sub(r"[^\n]", " ", m.group()) + blank[m.end():]
    for m in STRING.finditer(blank):
        if blank[:m.start()].rsplit("\n", 1)[-1].lstrip().startswith("#include"):
            continue
        said = re.sub(r'"\s*"', "", m.group())[1:-1]
        if words(said) >= 3 and " " in said.strip():
            yield "message", line_of(text, m.start()), said


def of_script(path, text):
    """(kind, line, text) of comments and of the texts of echo, fail and print."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if re.match(r"\s*# ", lines[at]) and "SPDX" not in lines[at]:
            first, said = at, []
            while at < len(lines) and re.match(r"\s*#( |$)", lines[at]):
                said.append(lines[at].strip(" #"))
                at += 1
            if words(" ".join(said)) >= 4:
                yield "comment", first + 1, " ".join(s for s in said if s)
            continue
        m = re.search(r"\b(?:fail|echo|print|exit|skip)\b[ (]+f?([\"'])(.*?)\1", lines[at])
        if m and words(m.group(2)) >= 3:
            yield "message", at + 1, m.group(2)
        at += 1


def main():
    """See above."""
    par = argparse.ArgumentParser(description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    par.add_argument("-n", type=int, default=10)
    par.add_argument("--seed", default=None)
    par.add_argument("folder", nargs="*")
    args = par.parse_args()
    seed = args.seed or git("rev-parse", "HEAD").strip()
    root = pathlib.Path(git("rev-parse", "--show-toplevel").strip())
    found = collections.defaultdict(list)
    for path in git("ls-files", "--full-name", ":/").splitlines():
        where = folder(path)
        if not where or (args.folder and where not in args.folder):
            continue
        if path.endswith(SOURCES) or path.endswith(SCRIPTS):
            text = (root / path).read_text(errors="replace")
            split = of_source if path.endswith(SOURCES) else of_script
            for kind, line, said in split(path, text):
                found[where, kind].append((path, line, said))
    print(f"seed {seed}")
    for where, kind in sorted(found):
        have = sorted(found[where, kind])
        drawn = random.Random(f"{seed} {where} {kind}").sample(have, min(args.n, len(have)))
        print(f"\n{where}: {len(drawn)} of {len(have)} {kind}s")
        for path, line, said in sorted(drawn):
            print(f"{path}:{line}: {said}")


if __name__ == "__main__":
    main()
