#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Are there plots on a screenshot of fdbench's report?

    png_check.py HTML PNG [MIN_PLOTS]

The colours are those that HTML's style names for the light scheme. A plot's
frame is filled with a colour that nothing else has: the frames are found by
cutting the picture where rows or columns have none of it. Each frame must
show a plausible number of pixels of one of the lines' colours, which reach
across half of the frame.
"""
import re
import struct
import sys
import zlib


def decode(path):
    """Rows of an 8-bit RGB or RGBA PNG, and the bytes of a pixel."""
    with open(path, "rb") as f:
        data = f.read()
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        sys.exit(f"{path}: not a PNG")
    at, body = 8, b""
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at:at + 8])
        chunk = data[at + 8:at + 8 + n]
        if zlib.crc32(kind + chunk) != struct.unpack(">I", data[at + 8 + n:at + 12 + n])[0]:
            sys.exit(f"{path}: chunk {kind} is damaged")
        if kind == b"IHDR":
            width, height, depth, color, _, _, interlace = struct.unpack(">IIBBBBB", chunk)
        if kind == b"IDAT":
            body += chunk
        at += 12 + n
    if depth != 8 or color not in (2, 6) or interlace:
        sys.exit(f"{path}: depth {depth}, colour type {color}: not what chromium writes")
    bpp = 3 if color == 2 else 4
    raw, stride = zlib.decompress(body), width * bpp
    rows, last = [], bytearray(stride)
    for y in range(height):
        kind = raw[y * (stride + 1)]
        row = bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        undo(kind, row, last, bpp)
        rows.append(row)
        last = row
    return rows, bpp


def undo(kind, row, up, bpp):
    if kind == 1:
        for i in range(bpp, len(row)):
            row[i] = (row[i] + row[i - bpp]) & 255
    elif kind == 2:
        for i, u in enumerate(up):
            row[i] = (row[i] + u) & 255
    elif kind == 3:
        for i in range(len(row)):
            left = row[i - bpp] if i >= bpp else 0
            row[i] = (row[i] + (left + up[i]) // 2) & 255
    elif kind == 4:
        for i in range(len(row)):
            a = row[i - bpp] if i >= bpp else 0
            c = up[i - bpp] if i >= bpp else 0
            p = a + up[i] - c
            pa, pb, pc = abs(p - a), abs(p - up[i]), abs(p - c)
            row[i] = (row[i] + (a if pa <= pb and pa <= pc else up[i] if pb <= pc else c)) & 255


def runs(flags, least):
    """(from, to) of the stretches of true flags, gaps of a few pixels closed."""
    out = []
    for i, on in enumerate(flags):
        if not on:
            continue
        if out and i - out[-1][1] <= 6:
            out[-1][1] = i + 1
        else:
            out.append([i, i + 1])
    return [(a, b) for a, b in out if b - a >= least]


def frames(rows, bpp, fill):
    """Rectangles x0, y0, x1, y1 mostly of colour fill."""
    width, height = len(rows[0]) // bpp, len(rows)
    is_fill = [bytearray(width) for _ in range(height)]
    for y, row in enumerate(rows):
        at = row.find(fill)
        while at >= 0:
            if at % bpp == 0:
                is_fill[y][at // bpp] = 1
            at = row.find(fill, at + 1)
    found = []
    columns = [sum(c) for c in zip(*is_fill)]
    for x0, x1 in runs([n > 60 for n in columns], 150):
        lines = [sum(line[x0:x1]) * 4 > x1 - x0 for line in is_fill]
        found += [(x0, y0, x1, y1) for y0, y1 in runs(lines, 80)]
    return found


def colour_of(pixel, colors, fill):
    """Index of the line colour that a pixel shows, full or half transparent, or -1."""
    for i, color in enumerate(colors):
        half = [(c + f) // 2 for c, f in zip(color, fill)]
        for want in (color, half):
            if all(abs(pixel[k] - want[k]) <= 24 for k in range(3)):
                return i
    return -1


def most_drawn(rows, bpp, frame, colors, fill):
    """Pixels, width and height of what the frame shows most of in one colour."""
    x0, y0, x1, y1 = frame
    cache = {}
    hits = [(set(), set(), [0]) for _ in colors]
    for y in range(y0, y1):
        row = bytes(rows[y])
        for x in range(x0, x1):
            pixel = row[x * bpp:x * bpp + 3]
            if pixel not in cache:
                cache[pixel] = colour_of(pixel, colors, fill)
            i = cache[pixel]
            if i >= 0:
                hits[i][0].add(x)
                hits[i][1].add(y)
                hits[i][2][0] += 1
    xs, ys, (n,) = max(hits, key=lambda h: h[2][0])
    return (n, max(xs) - min(xs), max(ys) - min(ys)) if n else (0, 0, 0)


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: png_check.py HTML PNG [MIN_PLOTS]")
    least = int(sys.argv[3]) if len(sys.argv) > 3 else 8
    with open(sys.argv[1], encoding="utf-8") as f:
        html = f.read()
    named = {}
    for name, value in re.findall(r"--([a-z0-9]+):#([0-9a-f]{6})\b", html):
        named.setdefault(name, bytes.fromhex(value))
    colors = [named[f"c{i}"] for i in range(1, 6)]
    rows, bpp = decode(sys.argv[2])
    plots = frames(rows, bpp, named["plot"] + (b"\xff" if bpp == 4 else b""))
    bad = seen = 0
    for x0, y0, x1, y1 in plots:
        n, wide, high = most_drawn(rows, bpp, (x0, y0, x1, y1), colors, named["plot"])
        # a line or dots from side to side or from top to bottom, but no filled area
        ok = 100 <= n < (x1 - x0) * (y1 - y0) / 3 and \
            (wide * 2 >= x1 - x0 or high * 2 >= y1 - y0)
        print(f"plot at {x0},{y0} {x1 - x0}x{y1 - y0}: {n} pixels of a line, {wide} wide, "
              f"{high} high{'' if ok else ': too few or too many'}")
        seen += 1
        bad += not ok
    if seen < least or bad:
        print(f"{seen} plots, {bad} without a line; expected {least}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
