# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""No daemon, a daemon that is killed while it answers, a worker that is: with and without
reconnect. It starts and ends daemons of its own."""
import asyncio
import os
import signal
import subprocess
import threading
import time
import unittest

import fdclient
from common import PROMPT, SLOW, ctl, until

TOKENS = 150
ASK = {"max_new": TOKENS, "ignore_eos": True, "temperature": 0}
RUN, DIR = os.environ["FDD_RUN"], os.environ["FDD_DIR"]


class Daemon:
    def __init__(self):
        with open(f"{DIR}/log", "ab") as log:
            self.process = subprocess.Popen(
                [os.environ["FDD"], "--set", f"daemon.runtime_dir={RUN}", "--set",
                 f"daemon.worker={os.environ['WORKER']}", "--set",
                 f"daemon.cache_dir={DIR}/cache", "--set",
                 f"model.path={os.environ['FDD_SRC']}/conf/models/demo", "--set",
                 "device.step_delay_us=5000"], stderr=log)
        ctl("--wait", str(20 * SLOW), "ping")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def kill_worker(self):
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], check=True,
                                  stdout=subprocess.PIPE).stdout.split()
        os.kill(int(children[0]), signal.SIGKILL)


class Faults(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(lambda: self.daemon.kill())

    def again(self):
        """Another daemon in the place of this one, which is killed."""
        self.daemon.kill()
        self.daemon = Daemon()

    def expected(self):
        with fdclient.Client() as fdd:
            return fdd.generate(PROMPT, **ASK)

    def test_killed(self):
        with fdclient.Client() as fdd:
            stream = fdd.stream(PROMPT, **ASK)
            next(stream)
            self.daemon.kill()
            with self.assertRaises(fdclient.Disconnected) as e:
                stream.read()
            self.assertIsInstance(e.exception, ConnectionError)
            self.assertEqual((e.exception.name, e.exception.retryable),
                             ("E_DISCONNECTED", True))
            self.assertTrue(0 < len(stream.result.ids) < TOKENS)
            for call in (lambda: fdd.generate("x"), lambda: fdd.info(), fdd.state,
                         lambda: fdd.stream("x")):
                with self.assertRaises(fdclient.Disconnected):
                    call()
        with self.assertRaises(fdclient.ConnectFailed):
            fdclient.Client()

    def test_killed_in_loop(self):
        async def main():
            async with fdclient.AsyncClient() as fdd:
                streams = [await fdd.stream(PROMPT, **ASK).start() for _ in range(8)]
                for s in streams:
                    await s.__anext__()
                tasks = [asyncio.ensure_future(s.read()) for s in streams]
                self.daemon.kill()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
                self.assertEqual([type(e) for e in ends], [fdclient.Disconnected] * 8)
                with self.assertRaises(fdclient.Disconnected):
                    await fdd.generate("x")
                with self.assertRaises(fdclient.Disconnected):
                    await fdd.info()
                # the descriptor of a dead session does not keep the loop busy
                cpu = time.process_time()
                await asyncio.sleep(0.5)
                self.assertLess(time.process_time() - cpu, 0.25)
        asyncio.run(main())

    def test_worker_killed(self):
        with fdclient.Client() as fdd:
            # more than it computes while a busy machine looks for the worker
            stream = fdd.stream(PROMPT, **dict(ASK, max_new=900))
            next(stream)
            self.daemon.kill_worker()
            with self.assertRaises(fdclient.Error) as e:
                stream.read()
            self.assertEqual((e.exception.name, e.exception.retryable),
                             ("E_GPU_RESET", True))
            until(lambda: "down" not in fdd.state(), 20)
            ctl("--wait", str(20 * SLOW), "ping")
            self.assertEqual(len(fdd.generate(PROMPT, max_new=3, ignore_eos=True).ids), 3)

    def test_draining(self):
        with fdclient.Client() as fdd:
            stream = fdd.stream(PROMPT, **ASK)
            next(stream)
            self.daemon.process.send_signal(signal.SIGTERM)
            until(lambda: fdd.state() == ["draining"])
            with self.assertRaises(fdclient.Error) as e:
                fdd.generate("x")
            self.assertEqual((e.exception.name, e.exception.retryable),
                             ("E_DRAINING", True))
            self.assertEqual(len(stream.read().ids), TOKENS)
            self.assertEqual(self.daemon.process.wait(), 0)

    # With reconnect.

    def broken(self, fault):
        """An answer during which fault() comes."""
        with fdclient.Client(reconnect=60) as fdd:
            stream = fdd.stream(PROMPT, **ASK)
            for _ in range(20):
                next(stream)
            t = threading.Thread(target=fault)
            t.start()
            result = stream.read()
            t.join()
            self.assertEqual(fdd.info().n_reconnect, 1 if fault == self.again else 0)
            return result

    def test_reconnect(self):
        want = self.expected()
        got = self.broken(self.again)
        self.assertEqual((got.text, got.ids, got.finish), (want.text, want.ids, "length"))

    def test_reconnect_worker(self):
        want = self.expected()
        got = self.broken(self.daemon.kill_worker)
        self.assertEqual((got.text, got.ids, got.finish), (want.text, want.ids, "length"))

    def test_reconnect_in_loop(self):
        want = self.expected()

        async def main():
            async with fdclient.AsyncClient(reconnect=60) as fdd:
                tasks = [asyncio.ensure_future(fdd.generate(PROMPT, **ASK))
                         for _ in range(8)]
                await asyncio.sleep(0.3)
                await asyncio.to_thread(self.again)
                for r in await asyncio.gather(*tasks):
                    self.assertEqual((r.text, r.ids), (want.text, want.ids))
                self.assertEqual((await fdd.info()).n_reconnect, 1)
        asyncio.run(main())

    def test_reconnect_prior(self):
        """A request that itself goes on behind prior_ids, with a fault and without."""
        want = self.expected()
        for fault in (None, self.daemon.kill_worker):
            with fdclient.Client(reconnect=60) as fdd:
                stream = fdd.stream(PROMPT, prior_ids=want.ids[:7], **ASK)
                for _ in range(20):
                    next(stream)
                if fault:
                    fault()
                got = stream.read()
            self.assertEqual((got.ids, got.finish), (want.ids[7:], "length"))
            self.assertTrue(got.text and want.text.endswith(got.text))
            with fdclient.Client() as fdd:
                self.assertEqual(fdd.detokenize(want.ids[:7]) + got.text, want.text)

    def test_reconnect_late(self):
        """What is asked while there is no daemon waits for it, with and without asyncio."""
        want = self.expected()

        async def main():
            async with fdclient.AsyncClient(reconnect=60) as fdd:
                self.daemon.kill()
                while fdd.state() != ["reconnecting"]:
                    await asyncio.sleep(0.01)
                task = asyncio.ensure_future(fdd.generate(PROMPT, **ASK))
                await asyncio.sleep(0.2)
                self.assertFalse(task.done())
                with self.assertRaises(fdclient.TimedOut):
                    await fdd.generate(PROMPT, timeout=0.2, **ASK)
                await asyncio.to_thread(self.again)
                self.assertEqual((await task).ids, want.ids)
        asyncio.run(main())

        async def never():
            async with fdclient.AsyncClient(reconnect=0.3) as fdd:
                self.daemon.kill()
                with self.assertRaises(fdclient.Disconnected):
                    await asyncio.wait_for(fdd.generate(PROMPT, **ASK), 30)
        asyncio.run(never())

    def test_reconnect_gives_up(self):
        with fdclient.Client(reconnect=0.5) as fdd:
            stream = fdd.stream(PROMPT, **ASK)
            next(stream)
            self.daemon.kill()
            with self.assertRaises(fdclient.Disconnected):
                stream.read()

    def test_no_resume(self):
        with fdclient.Client(reconnect=60) as fdd:
            stream = fdd.stream(PROMPT, no_resume=True, **ASK)
            next(stream)
            self.again()
            with self.assertRaises(fdclient.Disconnected):
                stream.read()
            self.assertEqual(len(fdd.generate(PROMPT, max_new=3, ignore_eos=True).ids), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
