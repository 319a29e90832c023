#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Write the King James Version as plain text for train_demo.py.

The text comes from the Debian packages bible-kjv (the program) and
bible-kjv-text (the data).  Output: one verse a line, without its
reference; an empty line after each chapter.
"""

import argparse
import re
import subprocess
import sys


def chapters(lines):
    """Yield each chapter as a list of verses, from `bible -f` output."""
    last, verses = None, []
    for line in lines:
        m = re.match(r"(\S+?):\d+ +(\S.*)$", line)
        if not m:
            sys.exit(f"demo_data.py: not a verse: '{line[:60]}'; expected"
                     " 'BookChapter:Verse text' as `bible -f` prints it")
        if m.group(1) != last and verses:
            yield verses
            verses = []
        last = m.group(1)
        verses.append(re.sub(r"\s+", " ", m.group(2)).strip())
    if verses:
        yield verses


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--verses", default="gen1:1-rev22:21",
                    help="passage in the bible program's notation (%(default)s)")
    ap.add_argument("--out", default="-", help="file to write (%(default)s: stdout)")
    args = ap.parse_args()

    try:
        raw = subprocess.run(["bible", "-f", args.verses], check=True,
                             stdin=subprocess.DEVNULL,
                             capture_output=True, text=True).stdout
    except FileNotFoundError:
        sys.exit("demo_data.py: no program 'bible';"
                 " apt-get install bible-kjv bible-kjv-text")
    except subprocess.CalledProcessError as e:
        sys.exit(f"demo_data.py: bible -f {args.verses} failed: {e.stderr.strip()}")

    out = sys.stdout if args.out == "-" else open(args.out, "w", encoding="utf-8")
    n_chapter = n_verse = 0
    for verses in chapters(raw.splitlines()):
        out.write("\n".join(verses) + "\n\n")
        n_chapter += 1
        n_verse += len(verses)
    out.flush()
    print(f"{n_chapter} chapters, {n_verse} verses", file=sys.stderr)


if __name__ == "__main__":
    main()
