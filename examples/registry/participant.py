#!/usr/bin/env python3
"""Take part in Belay's registry without Belay: only with files, file locks and the standard library.

    ./participant.py --dir belay-data --name talk --recipe llama --pieces 20

The program registers as a preemptible workflow, works piece by piece, renews its entry, and leaves when a swap asks it
to yield. It exits with 75 if a swap to another recipe is in progress or if it has lost its entry, and with 0 otherwise.
docs/registry.md describes the files.
"""

import argparse
import contextlib
import datetime
import fcntl
import json
import os
import sys
import time

TEMPFAIL = 75


def boot_id():
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f.read().strip()


def start_ns(pid):
    """The start of a process in nanoseconds since boot, or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()  # the name before may contain anything
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in "ZX":  # it has ended, and its parent does not know yet
        return None
    return int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat()


class Registry:
    """The registry of a data directory."""

    def __init__(self, directory):
        self.dir = os.path.abspath(directory)
        os.makedirs(self.dir, mode=0o700, exist_ok=True)
        self.boot, self.namespace = boot_id(), os.stat("/proc/self/ns/pid").st_ino

    def path(self, name):
        return os.path.join(self.dir, name)

    def create(self, name):
        """Create a file that the group of the directory may use too, if it may write to the directory."""
        fd = os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        directory = os.stat(self.dir)
        if directory.st_mode & 0o020:
            os.fchown(fd, -1, directory.st_gid)
            os.fchmod(fd, 0o660)
        return fd

    def open_lock(self, name):
        """Open a lock file. If there is none, make it under another name first, so that nobody sees it half made."""
        if not os.path.exists(self.path(name)):
            fresh = f".new-{os.getpid()}"
            os.close(self.create(fresh))
            with contextlib.suppress(FileExistsError):
                os.link(self.path(fresh), self.path(name))
            os.unlink(self.path(fresh))
        return os.open(self.path(name), os.O_RDONLY | os.O_NOFOLLOW)

    @contextlib.contextmanager
    def change(self):
        """Lock the registry and give its state; write the state back if the block has changed it."""
        lock = self.open_lock(".workflows.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = {"version": 1, "workflows": []}
            with contextlib.suppress(FileNotFoundError), open(self.path("workflows.json")) as f:
                state = json.load(f)
            if state.get("version", 1) > 1:
                raise SystemExit("a newer Belay has written workflows.json")
            before = json.dumps(state)
            self.reconcile(state)
            yield state
            if json.dumps(state) != before:
                self.write(state)
        finally:
            os.close(lock)  # frees the lock

    def write(self, state):
        """Replace the state file atomically and durably."""
        fresh = self.path(".workflows.json.new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)  # of a process that was killed
        with open(self.create(".workflows.json.new"), "w") as f:
            json.dump(state, f, indent=1)
            f.flush()
            os.fsync(f.fileno())
        os.rename(fresh, self.path("workflows.json"))
        self.sync_directory()

    def sync_directory(self):
        fd = os.open(self.dir, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def swap_lock_free(self):
        """Whether no process has the lock of a swap. Call it only with the lock of the registry."""
        lock = self.open_lock(".swap.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(lock)

    def reconcile(self, state):
        """Remove the marker of a swap whose holder is gone. The event is written first, and only once."""
        marker = state.get("swap_in_progress")
        if not marker:
            return
        if not self.swap_lock_free():
            here = (marker.get("holder_boot_id"), marker.get("holder_pid_namespace")) == (self.boot, self.namespace)
            if not here or start_ns(marker["holder_pid"]) == marker["holder_start_ns"]:
                return  # the swap goes on
        if not self.ended(marker.get("id")):
            event = {"at": now(), "event": "orphan_marker_cleared", "swap": marker.get("id")}
            event |= {k: marker[k] for k in ("target_recipe", "holder_pid", "holder_start_ns")}
            with contextlib.suppress(FileExistsError):
                os.close(self.create("swap_log.jsonl"))
            with open(self.path("swap_log.jsonl"), "a") as log:
                log.write(json.dumps(event) + "\n")
                log.flush()
                os.fsync(log.fileno())
        del state["swap_in_progress"]
        self.write(state)

    def ended(self, swap):
        """Whether the last event of the log is an end of this swap."""
        try:
            with open(self.path("swap_log.jsonl")) as log:
                last = json.loads(list(log)[-1])
        except (FileNotFoundError, IndexError, ValueError):
            return False
        return last.get("swap") == swap and last["event"] in ("done", "failed", "orphan_marker_cleared")

    def alive(self, entry):
        """Whether the entry's TTL is not over and its owner is not known to have ended."""
        if entry.get("owner_boot_id") == self.boot and "last_renewed_boot_ns" in entry:
            age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - entry["last_renewed_boot_ns"]
            if age >= entry["ttl_seconds"] * 1e9:
                return False
        if entry.get("owner_boot_id") != self.boot or entry.get("owner_pid_namespace") != self.namespace:
            return True  # belay registry ls finds out more
        return start_ns(entry["owner_pid"]) == entry["owner_start_ns"]


class Workflow:
    """An entry of the registry whose owner is this process."""

    def __init__(self, registry, name, recipe, ttl):
        self.registry, self.name = registry, name
        pid, start = os.getpid(), start_ns(os.getpid())
        self.signal = registry.path(f"signals/{name}-{pid}-{start}.preempt")
        self.entry = {
            "name": name, "recipe": recipe, "owner_pid": pid, "owner_start_ns": start, "owner_boot_id": registry.boot,
            "owner_pid_namespace": registry.namespace, "started_at": now(), "ttl_seconds": ttl, "preemptible": True,
            "preempt_signal_path": self.signal,
        }

    def touch(self, entry):
        entry["last_renewed_at"] = now()
        entry["last_renewed_boot_ns"] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def register(self):
        with self.registry.change() as state:
            swap = state.get("swap_in_progress")
            if swap and swap["target_recipe"] != self.entry["recipe"]:
                refuse(f"a swap to {swap['target_recipe']} by process {swap['holder_pid']} is in progress since "
                       f"{swap['started_at']}")
            if not swap and not self.registry.swap_lock_free():
                refuse("a swap is in progress whose marker was lost")
            for other in state["workflows"]:
                if other["name"] == self.name and self.registry.alive(other):
                    refuse(f"process {other['owner_pid']} has the name since {other['started_at']}")
            self.touch(self.entry)
            state["workflows"] = [e for e in state["workflows"] if e["name"] != self.name] + [self.entry]

    def mine(self, state):
        for e in state["workflows"]:
            if all(e.get(k) == self.entry[k] for k in ("name", "owner_pid", "owner_start_ns")):
                if self.registry.alive(e):
                    return e
        refuse("the entry is lost")

    def renew(self):
        with self.registry.change() as state:
            self.touch(self.mine(state))

    def release(self):
        with self.registry.change() as state:
            state["workflows"].remove(self.mine(state))
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.signal)

    def preempted(self):
        return os.path.exists(self.signal)


def refuse(why):
    print(f"refused: {why}", file=sys.stderr)
    raise SystemExit(TEMPFAIL)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", default=os.environ.get("BELAY_DATA", "belay-data"))
    p.add_argument("--name", required=True)
    p.add_argument("--recipe", required=True)
    p.add_argument("--ttl", type=float, default=60)
    p.add_argument("--pieces", type=int, default=20)
    p.add_argument("--pace", type=float, default=0.1, help="seconds for a piece of work")
    o = p.parse_args()
    w = Workflow(Registry(o.dir), o.name, o.recipe, o.ttl)
    w.register()
    print("registered", flush=True)
    for piece in range(o.pieces):
        if w.preempted():
            print("yields", flush=True)
            break
        time.sleep(o.pace)  # the work
        print("piece", piece, flush=True)
        w.renew()
    w.release()


if __name__ == "__main__":
    main()
