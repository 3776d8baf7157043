#!/usr/bin/env python3
"""An agent loop that owns its execution: a conversation of some turns, saved after each.

    agent.py --server http://127.0.0.1:7420 --key demo --name laptop

Start the agent twice: the second prints which agent has the conversation. Kill the first: the
second, started again, continues with the next turn.
"""

import argparse
import os
import signal
import sys
import time

from owned import UNANSWERED, Lost, Owned, Problem, Server

LOST, HELD = 3, 4  # exit codes


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--server", default=os.environ.get("BELAY_SERVER", "http://127.0.0.1:7420"))
    options.add_argument("--key", default="demo", help="names the conversation; the same key is the same execution")
    options.add_argument("--execution", help="an execution that is there already, instead of --key")
    options.add_argument("--name", default=f"agent-{os.getpid()}", help="who this is, for people")
    options.add_argument("--ttl", type=float, default=30, help="seconds without a heartbeat until the lock is lost")
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--pace", type=float, default=1, help="seconds a turn takes")
    options.add_argument("--on-lost", choices=["fail", "requeue"], help="whether the execution fails or is requeued when its owner is lost")
    options.add_argument("--reopen", action="store_true", help="open a failed conversation again")
    o = options.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the with block below suspends
    server = Server(o.server, os.environ.get("BELAY_KEY"))
    try:
        execution = o.execution or submit(server, o)
        with Owned(server, execution, o.name, o.ttl, o.reopen) as it:
            say(o, f"owns {execution} with token {it.token}")
            converse(it, o)
    except Problem as problem:
        if problem.holder:
            h = problem.holder
            say(o, f"held by {h['owner']} with token {h['token']}, for {h['expires_in_ms'] / 1000:.1f}s more unless it renews")
            return HELD
        say(o, f"refused: {problem}")
        return 1
    except Lost as lost:
        say(o, f"lost: {lost}")
        return LOST
    except UNANSWERED as error:
        say(o, f"no answer from {o.server}: {error}")
        return 1
    except KeyboardInterrupt:
        say(o, "interrupted; the next owner continues from here")
        return 130
    return 0


def submit(server, o):
    """Submit the execution of the key, or find it if it exists already."""
    body = {"workflow": "conversation", "dispatch": "external", "input": {"topic": "how ropes work"}}
    if o.on_lost:
        body["on_lost"] = o.on_lost
    return server.call("POST", "/executions", body, {"Idempotency-Key": o.key})["id"]


def converse(it, o):
    said = it.checkpoint or []
    if said:
        say(o, f"goes on after turn {len(said)}")
    while len(said) < o.turns:
        if it.cancelled.is_set():
            it.suspend()  # acknowledges the cancel
            say(o, "cancelled")
            return
        if not it.mine():
            raise Lost("no heartbeat got through in time")
        said = said + [f"{o.name}: turn {len(said) + 1}"]  # a model would be asked here
        time.sleep(o.pace)
        it.save(said)
        say(o, f"saved turn {len(said)}")
    it.complete({"turns": said})
    say(o, "complete")


def say(o, what):
    print(f"{o.name}: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
