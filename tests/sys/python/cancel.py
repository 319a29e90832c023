# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Every way to end a request early frees its place in the daemon, which here takes 18 s
for a whole answer."""
import gc
import os
import signal
import threading
import time
import unittest
import warnings
from unittest import mock

import fdclient
from common import PROMPT, n_requests, until

LONG = {"max_new": 900, "ignore_eos": True}


class Cancel(unittest.TestCase):
    def setUp(self):
        self.fdd = fdclient.Client()

    def tearDown(self):
        until(lambda: n_requests() == 0)
        self.assertEqual(len(self.fdd._open), 0)
        self.assertNotEqual(self.fdd.generate(PROMPT, max_new=2, ignore_eos=True).ids, [])
        self.fdd.close()

    def test_break(self):
        for piece in self.fdd.stream(PROMPT, **LONG):
            self.assertNotEqual(piece, "")
            break

    def test_break_of_events(self):
        for _ in self.fdd.stream(PROMPT, **LONG).events():
            break

    def test_exception(self):
        with self.assertRaises(ZeroDivisionError):
            with self.fdd.stream(PROMPT, **LONG) as stream:
                for _ in stream:
                    raise ZeroDivisionError
        with self.assertRaisesRegex(fdclient.Error, "is closed"):
            next(stream)  # no end that looks like a complete answer
        self.assertEqual(stream.tag, 0)

    def test_dropped(self):
        stream = self.fdd.stream(PROMPT, **LONG)
        until(lambda: n_requests() == 1)
        del stream

    def test_cycle(self):
        """What only the collector finds."""
        stream = self.fdd.stream(PROMPT, **LONG)
        stream.self = stream
        until(lambda: n_requests() == 1)
        del stream
        gc.collect()

    def test_cancel(self):
        stream = self.fdd.stream(PROMPT, **LONG)
        next(stream)
        stream.cancel()
        with self.assertRaises(fdclient.Cancelled) as e:
            list(stream)
        self.assertEqual(e.exception.name, "E_CANCELLED")
        self.assertGreater(len(stream.result.ids), 0)
        stream.cancel()
        stream.close()
        stream.close()

    def in_thread(self, action):
        """Of a stream that this thread reads meanwhile."""
        stream = self.fdd.stream(PROMPT, **LONG)
        t = threading.Timer(0.2, action, (stream,))
        t.start()
        begin = time.monotonic()
        with self.assertRaises(fdclient.Error) as e:
            stream.read()
        self.assertLess(time.monotonic() - begin, 10)
        self.assertIn(e.exception.name, ("E_CANCELLED", "E_INVAL"))
        t.join()

    def test_other_thread_cancels(self):
        self.in_thread(lambda stream: stream.cancel())

    def test_other_thread_closes(self):
        self.in_thread(lambda stream: stream.close())

    def test_other_thread_closes_client(self):
        self.in_thread(lambda stream: self.fdd.close())
        with self.assertRaisesRegex(fdclient.Error, "the client is closed"):
            self.fdd.generate(PROMPT)
        self.fdd = fdclient.Client()

    def test_many_threads_close(self):
        """Readers, and threads that close what is read, over and over."""
        failed = []

        def read(stream):
            try:
                stream.read()
            except fdclient.Error as e:
                if e.name not in ("E_CANCELLED", "E_INVAL"):
                    failed.append(e)
            except BaseException as e:
                failed.append(e)
        for _ in range(100):
            streams = [self.fdd.stream(PROMPT, **LONG) for _ in range(4)]
            threads = [threading.Thread(target=read, args=(s,)) for s in streams]
            threads += [threading.Thread(target=s.close) for s in streams]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        self.assertEqual(failed, [])

    def test_timeout(self):
        begin = time.monotonic()
        with self.assertRaises(fdclient.TimedOut) as e:
            self.fdd.generate(PROMPT, timeout=0.3, **LONG)
        self.assertTrue(0.3 <= time.monotonic() - begin < 10)
        self.assertIsInstance(e.exception, TimeoutError)
        stream = self.fdd.stream(PROMPT, timeout=0.0, max_new=4, ignore_eos=True)
        with self.assertRaises(fdclient.TimedOut):
            next(stream)  # nothing yet, and it may be read again
        until(lambda: n_requests() == 0)
        self.assertNotEqual(stream.read().ids, [])

    def test_interrupt(self):
        """Ctrl-C while it waits, in the main thread."""
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            self.fdd.generate(PROMPT, **LONG)
        self.assertLess(time.monotonic() - begin, 10)

    def test_interrupted_reads(self):
        """A signal handler that raises as fdc_next() returns, for each event: reading goes
        on without a hole."""
        class Tick(Exception):
            pass
        ask, n = {"max_new": 20, "ignore_eos": True, "temperature": 0}, 0
        want, take = self.fdd.generate(PROMPT, **ask), fdclient._lib.fdc_next

        def interrupted(*arguments):
            rc = take(*arguments)
            if rc == 1:
                raise Tick
            return rc
        stream = self.fdd.stream(PROMPT, **ask)
        with mock.patch.object(fdclient._lib, "fdc_next", interrupted):
            while True:
                try:
                    stream.read()
                    break
                except Tick:
                    n += 1
        self.assertGreater(n, 20)
        got = stream.result
        self.assertEqual((got.ids, got.text, got.finish), (want.ids, want.text, "length"))
        self.assertEqual(got.usage.output_tokens, 20)

    def test_interrupt_while_sending(self):
        """Ctrl-C just as a request was sent, which has no stream yet: it does not go on."""
        for name, call in (("fdc_submit_text", lambda: self.fdd.generate(PROMPT, **LONG)),
                           ("fdc_submit_many",
                            lambda: self.fdd.generate_many([PROMPT] * 3, **LONG))):
            submit, done = getattr(fdclient._lib, name), []

            def interrupted(*arguments):
                done.append(submit(*arguments))
                raise KeyboardInterrupt
            with mock.patch.object(fdclient._lib, name, interrupted):
                with self.assertRaises(KeyboardInterrupt):
                    call()
            self.assertGreaterEqual(done[0], 0)
            until(lambda: n_requests() == 0, 5)

    def test_unread(self):
        """A request that nothing reads ends."""
        with fdclient.Client(max_unread_bytes=256) as fdd:
            stream = fdd.stream(PROMPT, **LONG)
            # of a session without that bound: it takes as long
            self.fdd.generate(PROMPT, max_new=20, ignore_eos=True)
            with self.assertRaises(fdclient.Error) as e:
                stream.read()
            self.assertEqual(e.exception.name, "E_UNREAD")

    def test_fork(self):
        stream = self.fdd.stream(PROMPT, **LONG)
        next(stream)
        # another thread is inside the module at the moment of the fork
        other = threading.Thread(target=lambda: self.fdd.generate(PROMPT, max_new=20))
        other.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads
            pid = os.fork()
        if pid == 0:
            try:
                for call in (lambda: next(stream), lambda: self.fdd.generate("x"),
                             lambda: self.fdd.info(), self.fdd.state):
                    try:
                        call()
                        os._exit(3)
                    except fdclient.Forked as e:
                        assert e.name == "E_FORKED"
                stream.close()
                self.fdd.close()
                with fdclient.Client() as mine:
                    assert mine.generate("x", max_new=2, ignore_eos=True).ids
                os._exit(0)
            except BaseException as e:
                print("in the child:", repr(e), flush=True)
            os._exit(4)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertNotEqual(next(stream), "")  # the parent's goes on
        other.join()
        stream.close()

    def test_room(self):
        """With all places taken, a request waits for room, or says that there is none."""
        n = self.fdd.info().max_inflight
        streams = [self.fdd.stream(PROMPT, **LONG) for _ in range(n)]
        why = (r"^E_TIMEOUT: .*: no room within (0\.[4-9]|[1-9]\d*\.\d) s: "
               f"{n} of {n} requests are open$")
        with self.assertRaisesRegex(fdclient.TimedOut, why):
            self.fdd.stream(PROMPT, timeout=0.4)
        with self.assertRaisesRegex(fdclient.TimedOut, why):
            self.fdd.generate_many([PROMPT, PROMPT], timeout=0.4)
        threading.Timer(0.3, streams[3].close).start()
        got = self.fdd.generate(PROMPT, max_new=1, ignore_eos=True)
        self.assertEqual(len(got.ids), 1)
        for s in streams:
            s.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
