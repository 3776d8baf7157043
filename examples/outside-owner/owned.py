"""Own a Belay execution from outside, over plain HTTP, with the standard library only.

    with Owned(server, execution, owner="agent-7", ttl=30) as it:
        state = it.checkpoint or {"turn": 0}
        while state["turn"] < 10 and it.mine():
            state = work(state)
            it.save(state)
        it.complete(state)

While `mine()` is true, no other program owns the execution, and the server accepts
no save of another program. `mine()` becomes false before another program can get the lock:
this side counts the lock's time from the moment when the last heartbeat was
sent, on a clock that goes on while the machine sleeps, and stops early. Call it
before every effect; a timer alone lets a process that was stopped and continued
write late.
"""

import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid


# The exceptions of a request without an answer: no server, a broken connection, half an answer.
UNANSWERED = (OSError, http.client.HTTPException, json.JSONDecodeError)


class Problem(Exception):
    """A refusal of the server: RFC 9457 with a stable code."""

    def __init__(self, status, body):
        self.status, self.body = status, body
        self.code, self.cause = body.get("code", ""), body.get("cause", "")
        self.holder = body.get("holder")
        super().__init__(f"{status} {self.code}: {body.get('detail', '')}")


class Lost(Exception):
    """The execution is not ours any more: stop, and write nothing."""


class Server:
    """A Belay server: sends requests and raises refusals; it keeps no state."""

    def __init__(self, url, key=None):
        self.url, self.key = url.rstrip("/") + "/v1", key

    def call(self, method, path, body=None, headers=None, timeout=10):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers or {}, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self.key:
            request.add_header("Authorization", "Bearer " + self.key)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                text = response.read()
                return json.loads(text) if text else {}
        except urllib.error.HTTPError as error:
            with error:
                try:
                    body = json.load(error)
                except ValueError:
                    body = {"detail": error.reason}
            raise Problem(error.code, body) from None


class Owned:
    """One execution, which this process owns until it releases or loses the execution."""

    def __init__(self, server, execution, owner, ttl=30, reopen=False):
        self.server, self.execution = server, execution
        self.path = "/executions/" + urllib.parse.quote(execution)
        began = clock()
        lock = server.call("POST", self.path + "/lock", {"owner": owner, "ttl": f"{int(ttl * 1000)}ms", "reopen": reopen})
        lease = lock["lease"]
        self.token, self.lock_id = lease["token"], lease["lock_id"]
        self.beat = lease["heartbeat_interval_ms"] / 1000
        self.input = lock["execution"].get("input")
        self.checkpoint = (lock["checkpoint"] or {}).get("data")
        self.cancelled = threading.Event()
        self._lost = None
        self._renewed(began, lease["expires_in_ms"])
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._heartbeats, name="belay-heartbeat", daemon=True)
        self._thread.start()

    def mine(self):
        """Whether this process may still act as the owner. Ask before every effect."""
        return self._lost is None and clock() < self._until and not self.cancelled.is_set()

    def save(self, data):
        """Save a checkpoint. It is on disk when this returns; the next owner continues from it."""
        return self._write("PUT", "/checkpoint", {"data": data})

    def complete(self, output=None):
        """End the execution with its result."""
        self._release({"outcome": "complete", "output": output})

    def fail(self, message):
        """End this attempt with an error; the execution's policy decides about a retry."""
        self._release({"outcome": "fail", "error": {"class": "transient", "message": message}})

    def suspend(self):
        """Give the execution back unfinished. The next owner continues from the last checkpoint."""
        self._release({"outcome": "suspend"})

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if not self._done.is_set() and self._lost is None:
            if error is None or isinstance(error, (KeyboardInterrupt, SystemExit)):
                self.suspend()
            elif not isinstance(error, Lost):
                self.fail(f"{kind.__name__}: {error}")
        self._stop()

    def _release(self, body):
        self._write("POST", f"/lock/{self.lock_id}/release", body)
        self._stop()

    def _write(self, method, path, body):
        """A write that only the owner may make. If the reply is lost, the write is repeated with the same operation id."""
        operation = str(uuid.uuid4())
        while True:
            if self._lost or clock() >= self._until:
                raise Lost(self._lost or "no heartbeat got through in time")
            try:
                return self.server.call(method, self.path + path, body, {
                    "Lease-Id": self.lock_id, "Lease-Token": str(self.token), "Idempotency-Key": operation})
            except Problem as problem:
                if problem.status == 412:
                    self._lost = str(problem)
                    raise Lost(self._lost) from None
                if problem.status not in (429, 503):
                    raise
            except UNANSWERED:
                pass  # the write may have arrived or not
            time.sleep(0.2)

    def _heartbeats(self):
        while not self._done.wait(self.beat):
            sent = clock()
            try:
                reply = self.server.call("PUT", f"{self.path}/lock/{self.lock_id}", timeout=self.beat)
            except Problem as problem:
                if problem.status == 412:
                    self._lost = str(problem)
                    return
            except UNANSWERED:
                pass  # the next one may get through
            else:
                self._renewed(sent, reply["expires_in_ms"])
                if reply.get("cancel"):
                    self.cancelled.set()

    def _renewed(self, sent, expires_in_ms):
        self._until = sent + expires_in_ms / 1000 * 2 / 3  # a third of the time is the safety margin

    def _stop(self):
        self._done.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()


def clock():
    """Seconds on a clock that goes on while the machine sleeps, if the system has one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
