# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""AsyncClient against a daemon that takes 2 ms a step: many streams in one loop that
never waits elsewhere, every way to end one, limits, errors."""
import asyncio
import gc
import inspect
import os
import threading
import time
import unittest
import warnings
from unittest import mock

import fdclient
from common import PROMPT, ctl, greedy, n_fds, n_requests, rss, until

LONG = {"max_new": 900, "ignore_eos": True}


class Loop(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.fdd = await fdclient.AsyncClient(name="loop").open()

    async def asyncTearDown(self):
        until(lambda: n_requests() == 0)
        self.assertEqual(len(self.fdd._open), 0)
        await self.fdd.close()

    async def test_methods(self):
        """As doc/python.md says: those of Client as coroutines, but for three."""
        names = [{n for n in vars(c) | vars(fdclient._Session) if n[0] != "_"}
                 for c in (fdclient.Client, fdclient.AsyncClient)]
        self.assertEqual((names[0] - names[1], names[1] - names[0]),
                         ({"generate_many"}, {"open"}))
        plain = {n for n in names[1] if not inspect.iscoroutinefunction(
            getattr(fdclient.AsyncClient, n))}
        self.assertEqual(plain, {"stream", "state"})

    async def test_same_as_fdctl(self):
        want = greedy(24)
        got = await self.fdd.generate(PROMPT, max_new=24, temperature=0, ignore_eos=True)
        self.assertEqual((got.text, got.ids), (want["text"], want["ids"]))
        pieces = [p async for p in self.fdd.stream(PROMPT, max_new=24, temperature=0,
                                                   ignore_eos=True)]
        self.assertEqual("".join(pieces), want["text"])
        self.assertGreater(len(pieces), 10)
        kinds = [type(e).__name__ async for e in
                 self.fdd.stream(PROMPT, max_new=2, logprobs=1, n=2).events()]
        self.assertEqual((kinds[0], kinds[-1], kinds.count("SampleEnd")),
                         ("Accepted", "Done", 2))

    async def test_64_streams(self):
        """64 at a time, all of them in turn, in this one thread; the loop's other tasks
        get their turn, too."""
        texts = {i: greedy(160, f"{PROMPT} {i}")["text"] for i in (0, 31, 63)}
        order, late = [], 0.0

        async def one(i):
            text = ""
            async for piece in self.fdd.stream(f"{PROMPT} {i}", max_new=160, temperature=0,
                                               ignore_eos=True):
                text += piece
                order.append(i)
            return text

        async def beat():
            nonlocal late
            while True:
                t = time.monotonic()
                await asyncio.sleep(0.01)
                late = max(late, time.monotonic() - t)
        other = asyncio.ensure_future(beat())
        threads = threading.active_count()
        got = await asyncio.gather(*(one(i) for i in range(64)))
        self.assertEqual(threading.active_count(), threads)
        other.cancel()
        self.assertEqual({i: got[i] for i in texts}, texts)
        half = order[:len(order) // 2]
        self.assertEqual(len(set(half)), 64, "all streams move in the first half")
        self.assertLess(late, 1.0, "seconds that the loop stood still")

    async def test_idle(self):
        """While nothing comes, the loop makes no turn: no polling."""
        n = 0
        pump = self.fdd._pump

        def counted():
            nonlocal n
            n += 1
            pump()
        self.fdd._loop.remove_reader(self.fdd._fd)
        self.fdd._loop.add_reader(self.fdd._fd, counted)
        await asyncio.sleep(1.0)
        self.assertLess(n, 4)
        await self.fdd.generate(PROMPT, max_new=10, ignore_eos=True)
        self.assertGreater(n, 5)

    async def test_more_than_room(self):
        n = (await self.fdd.info()).max_inflight * 2 + 5
        got = await asyncio.gather(*(self.fdd.generate(f"{i}", max_new=2, ignore_eos=True)
                                     for i in range(n)))
        self.assertEqual({len(r.ids) for r in got}, {2})

    async def test_no_room(self):
        """One that waits for room times out, is cancelled, or gets the next place."""
        n = (await self.fdd.info()).max_inflight
        held = [await self.fdd.stream(PROMPT, **LONG).start() for _ in range(n)]
        with self.assertRaises(fdclient.TimedOut):
            await self.fdd.generate("x", timeout=0.1)
        task = asyncio.ensure_future(self.fdd.generate("x"))
        await asyncio.sleep(0.05)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        task = asyncio.ensure_future(self.fdd.generate("x", max_new=1, ignore_eos=True))
        await asyncio.sleep(0.05)
        self.assertFalse(task.done())
        held.pop().close()
        self.assertEqual(len((await asyncio.wait_for(task, 20)).ids), 1)
        for stream in held:
            stream.close()

    async def test_ended_without_room(self):
        """close() and cancel() end a stream that waits for room, or was not read yet; it
        is never sent."""
        n = (await self.fdd.info()).max_inflight
        held = [await self.fdd.stream(PROMPT, **LONG).start() for _ in range(n)]
        waiting = [self.fdd.stream(PROMPT, **LONG) for _ in range(4)]
        tasks = [asyncio.ensure_future(s.read()) for s in waiting[:2]]
        await asyncio.sleep(0.05)
        self.assertEqual([t.done() for t in tasks], [False, False])
        waiting[0].close()
        waiting[1].cancel()
        waiting[2].close()
        waiting[3].cancel()
        tasks += [asyncio.ensure_future(s.read()) for s in waiting[2:]]
        for task in tasks:
            with self.assertRaisesRegex(fdclient.Cancelled, "the stream was closed"):
                await asyncio.wait_for(task, 10)
        held.pop().close()
        await asyncio.sleep(0.1)
        self.assertEqual(len(self.fdd._open), n - 1)
        for stream in held:
            stream.close()

    async def test_break(self):
        async for _ in self.fdd.stream(PROMPT, **LONG):
            break
        async for _ in self.fdd.stream(PROMPT, **LONG).events():
            break
        gc.collect()

    async def test_with(self):
        with self.assertRaises(ZeroDivisionError):
            async with self.fdd.stream(PROMPT, **LONG) as stream:
                async for _ in stream:
                    raise ZeroDivisionError
        with self.assertRaises(fdclient.Cancelled):
            await stream.read()

    async def test_task_cancelled(self):
        for call in (lambda: self.fdd.generate(PROMPT, **LONG),
                     lambda: self.fdd.stream(PROMPT, **LONG).read()):
            task = asyncio.ensure_future(call())
            while n_requests() == 0:
                await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            until(lambda: n_requests() == 0)

    async def test_cancel(self):
        stream = self.fdd.stream(PROMPT, **LONG)
        await stream.__anext__()
        stream.cancel()
        with self.assertRaises(fdclient.Cancelled):
            await stream.read()
        self.assertGreater(len(stream.result.ids), 0)

    async def test_closed_by_another_task(self):
        stream = self.fdd.stream(PROMPT, **LONG)
        task = asyncio.ensure_future(stream.read())
        await asyncio.sleep(0.1)
        stream.close()
        with self.assertRaises(fdclient.Cancelled):
            await task

    async def test_opened_by_tasks(self):
        """Tasks that open a client at the same time get one session, which answers."""
        fds = n_fds()
        fdd = fdclient.AsyncClient(name="by-tasks")
        await asyncio.gather(*(fdd.open() for _ in range(4)))
        self.assertEqual(ctl("clients").count("by-tasks"), 1)
        got = await asyncio.wait_for(fdd.generate(PROMPT, max_new=4, ignore_eos=True), 20)
        self.assertEqual(len(got.ids), 4)
        await fdd.close()
        self.assertEqual(n_fds(), fds)

    async def test_open_given_up(self):
        """What a cancelled open() opens late serves the next open(), or is closed."""
        fds, dial, done = n_fds(), fdclient._lib.fdc_open, threading.Event()

        def slow(*arguments):
            time.sleep(0.2)
            try:
                return dial(*arguments)
            finally:
                done.set()
        for again in (True, False):
            done.clear()
            fdd = fdclient.AsyncClient()
            with mock.patch.object(fdclient._lib, "fdc_open", slow):
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(fdd.open(), 0.02)
                if again:
                    await fdd.open()
                    self.assertEqual((await fdd.info()).model, "demo")
                await fdd.close()
                done.wait(10)
            until(lambda: n_fds() == fds)

    async def test_client_closed(self):
        fdd = await fdclient.AsyncClient().open()
        tasks = [asyncio.ensure_future(fdd.generate(PROMPT, **LONG)) for _ in range(3)]
        await asyncio.sleep(0.1)
        await fdd.close()
        for task in tasks:
            with self.assertRaisesRegex(fdclient.Cancelled, "client was closed"):
                await asyncio.wait_for(task, 10)
        with self.assertRaisesRegex(fdclient.Error, "is closed"):
            await fdd.generate(PROMPT)

    async def test_fork(self):
        """A child gets Forked and closes its copy; the parent's streams go on."""
        stream = self.fdd.stream(PROMPT, max_new=200, ignore_eos=True)
        await stream.__anext__()

        async def child():
            for call in (lambda: self.fdd.generate("x"), lambda: self.fdd.info()):
                with self.assertRaises(fdclient.Forked):
                    await call()
            await self.fdd.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads
            pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(child())
                os._exit(0)
            except BaseException as e:
                print("in the child:", repr(e), flush=True)
            os._exit(4)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertEqual(len((await asyncio.wait_for(stream.read(), 20)).ids), 200)

    async def test_timeout(self):
        begin = time.monotonic()
        with self.assertRaises(fdclient.TimedOut):
            await self.fdd.generate(PROMPT, timeout=0.2, **LONG)
        self.assertTrue(0.2 <= time.monotonic() - begin < 5)

    async def test_errors(self):
        with self.assertRaises(fdclient.Error) as e:
            await self.fdd.generate(PROMPT, temperature=150)
        self.assertEqual((e.exception.detail, e.exception.value), ("temperature", 150.0))
        with self.assertRaisesRegex(TypeError, "is it 'temperature'"):
            await self.fdd.generate(PROMPT, temprature=1)
        with self.assertRaisesRegex(RuntimeError, "not open"):
            await fdclient.AsyncClient().generate(PROMPT)
        with self.assertRaisesRegex(fdclient.Error, "is not open: use async with"):
            await fdclient.AsyncClient().info()
        nowhere = fdclient.AsyncClient("/nonexistent/sock")
        for _ in range(2):  # it may be tried again
            with self.assertRaises(fdclient.ConnectFailed) as e:
                await nowhere.open()
        self.assertEqual(e.exception.os_error, 2)
        self.assertIn("/nonexistent/sock", str(e.exception))
        stream = await self.fdd.stream(PROMPT, **LONG).start()
        task = asyncio.ensure_future(stream.read())
        await asyncio.sleep(0.05)
        with self.assertRaisesRegex(RuntimeError, "one task"):
            for _ in range(100):
                await stream.__anext__()
        stream.close()
        with self.assertRaises(fdclient.Cancelled):
            await task

    async def test_blocking_calls(self):
        ids, text, info, ping = await asyncio.gather(
            self.fdd.tokenize(PROMPT), self.fdd.detokenize([268]), self.fdd.info(),
            self.fdd.ping(deep=True))
        self.assertEqual((len(ids), text, info.model), (4, " of", "demo"))
        self.assertTrue(0 < ping < 10)

    async def test_unread(self):
        """A reader that does not come: the request ends before the memory does."""
        async with fdclient.AsyncClient(max_unread_bytes=1000) as fdd:
            stream = await fdd.stream(PROMPT, **LONG).start()
            # of a session without that bound: it takes as long
            await self.fdd.generate(PROMPT, max_new=60, ignore_eos=True)
            with self.assertRaises(fdclient.Error) as e:
                await stream.read()
            self.assertEqual(e.exception.name, "E_UNREAD")
            with self.assertRaises(fdclient.Error) as e:
                await stream.read()
            self.assertEqual(e.exception.name, "E_UNREAD")

    async def test_unread_text(self):
        """A text counts by its bytes: a prompt that comes back whole stays in the limit."""
        async with fdclient.AsyncClient(max_unread_bytes=9000) as fdd:
            got = await fdd.generate("In the beginning. " * 150, prompt_text=True,
                                     max_new=1, ignore_eos=True)
            self.assertEqual(got.prompt_text, "In the beginning. " * 150)

    async def test_little_unread(self):
        """What was read does not count, though something is unread all the time."""
        async with fdclient.AsyncClient(max_unread_bytes=4000) as fdd:
            stream = await fdd.stream(PROMPT, max_new=80, ignore_eos=True).start()
            while True:
                while len(stream._queue) < 3 and stream._h is not None:
                    await asyncio.sleep(0.001)
                ev = await stream._read(None)
                if isinstance(ev, fdclient.Done):
                    break
            self.assertEqual(len(stream.result.ids), 80)

    async def test_memory(self):
        async def some(n):
            for i in range(n):
                await asyncio.gather(*(self.fdd.generate("a", max_new=1)
                                       for _ in range(50)))
        await some(4)
        gc.collect()
        before, fds = rss(), n_fds()
        await some(40)
        gc.collect()
        self.assertLess(rss() - before, 2 << 20)
        self.assertEqual(n_fds(), fds)


if __name__ == "__main__":
    unittest.main(verbosity=2)
