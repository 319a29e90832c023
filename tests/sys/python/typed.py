# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""A program with types, for mypy --strict; it is not run."""
import asyncio
from typing import List

import fdclient


def plain() -> None:
    with fdclient.Client(name="typed", reconnect=5.0) as fdd:
        result = fdd.generate("In the beginning", max_new=8, temperature=0, stop=["."],
                              bias={1: -1.0}, bad_ids=[[1, 2]], logprobs=2, n=2)
        text: str = result.text
        ids: List[int] = result.ids
        best: float = result.logprobs[0][1].logprob
        print(text, ids, best, [s.finish for s in result.samples])
        for piece in fdd.stream(fdd.tokenize("In the")):
            print(piece.upper())
        with fdd.stream("In the", timeout=2) as stream:
            for event in stream.events():
                if isinstance(event, fdclient.Done):
                    print(event.usage.output_tokens + 1)


async def loop() -> None:
    async with fdclient.AsyncClient() as fdd:
        async for piece in fdd.stream("In the", seed=7):
            print(piece.upper())
        try:
            print((await fdd.generate([1, 2, 3], timeout=1.5)).usage)
        except fdclient.Error as e:
            print(e.name, e.detail, e.value, e.limit, e.retry_after_ms + 1)


plain()
asyncio.run(loop())
