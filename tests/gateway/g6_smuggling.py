# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Requests that two HTTP parsers could read differently: each is refused and the connection
closed, or counts as one request, never two."""
from wire import Reader, connect

IN = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
P = b"POST /detokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
G = b"GET /version HTTP/1.1\r\nHost: localhost\r\n"


def chunked(extra=b"", body=b"2\r\n{}\r\n0\r\n\r\n"):
    return P + extra + b"Transfer-Encoding: chunked\r\n\r\n" + body


REFUSED = {
    "CL and TE": P + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + IN,
    "TE and CL": P + b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n" + IN,
    "two lengths": P + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}" + IN,
    "two equal lengths": P + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" + IN,
    "list of lengths": P + b"Content-Length: 2, 2\r\n\r\n{}" + IN,
    "length with plus": P + b"Content-Length: +2\r\n\r\n{}" + IN,
    "negative length": P + b"Content-Length: -1\r\n\r\n{}" + IN,
    "hex length": P + b"Content-Length: 0x2\r\n\r\n{}" + IN,
    "length with text": P + b"Content-Length: 2abc\r\n\r\n{}" + IN,
    "empty length": P + b"Content-Length: \r\n\r\n{}" + IN,
    "huge length": P + b"Content-Length: 99999999999999999999\r\n\r\n{}" + IN,
    "length with blank inside": P + b"Content-Length: 2 2\r\n\r\n{}" + IN,
    "blank before colon": P + b"Content-Length : 2\r\n\r\n{}" + IN,
    "tab before colon": P + b"Content-Length\t: 2\r\n\r\n{}" + IN,
    "TE blank before colon": P + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + IN,
    "TE xchunked": P + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + IN,
    "TE chunked, identity": P + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + IN,
    "TE gzip, chunked": P + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + IN,
    "TE identity": P + b"Transfer-Encoding: identity\r\n\r\n" + IN,
    "TE twice": P + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + IN,
    "TE quoted": P + b"Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n" + IN,
    "TE with vertical tab": P + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + IN,
    "TE in HTTP/1.0": b"POST /detokenize HTTP/1.0\r\nContent-Type: application/json\r\n"
                      b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + IN,
    "folded header": G + b"X-A: b\r\n c: d\r\n\r\n",
    "folded first header": b"GET /version HTTP/1.1\r\n Host: localhost\r\n\r\n",
    "bare LF lines": b"GET /version HTTP/1.1\nHost: localhost\n\n",
    "bare LF inside": G + b"X-A: b\nContent-Length: 40\r\n\r\n" + IN,
    "bare CR inside": G + b"X-A: b\rContent-Length: 40\r\n\r\n" + IN,
    "CR CR LF": G + b"X-A: b\r\r\n\r\n",
    "NUL in a header": G + b"X-A: b\x00c\r\n\r\n",
    "NUL in a name": G + b"X\x00A: b\r\n\r\n",
    "control in a header": G + b"X-A: b\x01c\r\n\r\n",
    "header without colon": G + b"X-A\r\n\r\n",
    "header without name": G + b": b\r\n\r\n",
    "blank in a name": G + b"X A: b\r\n\r\n",
    "two hosts": G + b"Host: other\r\n\r\n",
    "no host": b"GET /version HTTP/1.1\r\n\r\n",
    "empty host": b"GET /version HTTP/1.1\r\nHost: \r\n\r\n",
    "host with path": b"GET /version HTTP/1.1\r\nHost: localhost/x\r\n\r\n",
    "absolute target": b"GET http://other/version HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "target without slash": b"GET version HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two blanks before target": b"GET  /version HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two blanks before version": b"GET /version  HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tab in request line": b"GET\t/version HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "blank behind version": b"GET /version HTTP/1.1 \r\nHost: localhost\r\n\r\n",
    "no version": b"GET /version\r\nHost: localhost\r\n\r\n",
    "HTTP/1.2": b"GET /version HTTP/1.2\r\nHost: localhost\r\n\r\n",
    "HTTP/2.0": b"GET /version HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "HTTP/01.1": b"GET /version HTTP/01.1\r\nHost: localhost\r\n\r\n",
    "lower case http": b"GET /version http/1.1\r\nHost: localhost\r\n\r\n",
    "empty line first": b"\r\n" + IN,
    "unknown expectation": P + b"Expect: x\r\nContent-Length: 2\r\n\r\n{}",
    "chunk extension": chunked(body=b"2;a=b\r\n{}\r\n0\r\n\r\n") + IN,
    "chunk size with blank": chunked(body=b"2 \r\n{}\r\n0\r\n\r\n") + IN,
    "chunk size with 0x": chunked(body=b"0x2\r\n{}\r\n0\r\n\r\n") + IN,
    "chunk size negative": chunked(body=b"-2\r\n{}\r\n0\r\n\r\n") + IN,
    "chunk size empty": chunked(body=b"\r\n{}\r\n0\r\n\r\n") + IN,
    "chunk size overflow": chunked(body=b"100000000000000002\r\n{}\r\n0\r\n\r\n") + IN,
    "chunk ends with LF": chunked(body=b"2\n{}\n0\n\n") + IN,
    "chunk longer than said": chunked(body=b"2\r\n{}x\r\n0\r\n\r\n") + IN,
    "chunk trailer": chunked(body=b"2\r\n{}\r\n0\r\nContent-Length: 40\r\n\r\n") + IN,
}
ONE = {
    "plain": G + b"\r\n",
    "blanks around a value": G + b"X-A: \t b \t\r\n\r\n",
    "length with zeros": P + b"Content-Length: 0000002\r\n\r\n{}",
    "chunked": chunked(),
    "chunks of one byte": chunked(body=b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"),
    "chunk size in capitals": chunked(body=b"00000002\r\n{}\r\n00\r\n\r\n"),
    "Chunked in capitals": P + b"Transfer-Encoding: CHUNKED\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "obs-text in a header": G + b"X-A: \xff\xfe\r\n\r\n",
}


def answers(raw, pieces):
    with connect(5) as s:
        step = len(raw) if pieces is None else pieces
        try:
            for i in range(0, len(raw), step):
                s.sendall(raw[i:i + step])
        except ConnectionError:
            pass  # refused before everything was sent
        s.settimeout(1.0)
        r, out = Reader(s), []
        try:
            while True:
                status, h, _ = r.answer()
                if status is None:
                    return out, True
                out.append((status, h))
        except TimeoutError:
            return out, False


def main():
    bad = 0
    for name, raw in REFUSED.items():
        for pieces in (None, 1):
            out, closed = answers(raw, pieces)
            if [s for s, _ in out if s < 400] or len(out) != 1 or not closed:
                print(f"{name}: answers {[s for s, _ in out]}, {'closed' if closed else 'open'}")
                bad += 1
    for name, raw in ONE.items():
        out, closed = answers(raw, None)
        if len(out) != 1 or closed:
            print(f"{name}: answers {[s for s, _ in out]}, {'closed' if closed else 'open'}")
            bad += 1
    # Pipelined requests are answered one by one, in order.
    out, _ = answers((G + b"\r\n") * 20, None)
    if [s for s, _ in out] != [200] * 20:
        print(f"20 in a row: {[s for s, _ in out]}")
        bad += 1
    assert len(REFUSED) >= 40
    print(f"{len(REFUSED)} refused in one piece and byte by byte, {len(ONE)} are one request: {bad} wrong")
    return bad != 0


raise SystemExit(main())
