#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Answers to several prompts at a time, in an event loop of asyncio.

    pip install ./python
    examples/asyncio_answers.py "In the beginning" "And he said"
"""
import asyncio
import sys

import fdclient


async def answer(fdd: fdclient.AsyncClient, prompt: str) -> None:
    """Prints an answer as it comes. While it waits, the other tasks run."""
    async for piece in fdd.stream(prompt, max_new=40, temperature=0):
        print(f"{prompt}:{piece}", flush=True)


async def main() -> None:
    # One session serves all tasks: the loop waits on one descriptor.
    async with fdclient.AsyncClient() as fdd:
        await asyncio.gather(*(answer(fdd, prompt) for prompt in sys.argv[1:]))


try:
    asyncio.run(main())
except fdclient.Error as e:
    sys.exit(f"{sys.argv[0]}: {e}")
