#!/usr/bin/env python3
"""A small agent that carries out its prompt, for demonstrations and tests.

It reads the prompt from its last argument, or from standard input if there is none,
and carries out each line in the working directory:

  edit FILE TEXT     append a line to a file
  commit MESSAGE     commit everything
  git ARGS...        run git
  cat FILE           print a file
  show NAME          print an environment variable
  where              print the working directory
  touch FILE         create a file; $TMPDIR/FILE does not belong to the saved work
  until FILE         wait until the file exists
  sleep SECONDS
  write BYTES        print this number of bytes
  fail CODE          fail with this exit code
  ask QUESTION       ask a person and print the answer; the job ends while it waits
  report TEXT        show people a line about what the agent does

It prints any other line unchanged. With --stream-json it writes JSON lines
as Claude Code does, with its token usage at the end; its last text is the result.
"""
import json
import os
import shlex
import subprocess
import sys
import time


class Agent:
    def __init__(self, stream):
        self.stream = stream
        self.last = ""
        self.turns = 0

    def put(self, message):
        print(json.dumps(message), flush=True)

    def say(self, text):
        self.last = text
        if self.stream:
            self.put({"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}})
        else:
            print(text, flush=True)

    def tool(self, name, given):
        self.turns += 1
        if self.stream:
            use = {"type": "tool_use", "name": name, "input": given}
            self.put({"type": "assistant", "message": {"role": "assistant", "content": [use]}})

    def run(self, *argv):
        self.tool("Bash", {"command": shlex.join(argv)})
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            print(done.stdout, file=sys.stderr, flush=True)
            raise SystemExit(3)
        if done.stdout.strip():
            self.say(done.stdout.strip())

    def line(self, line):
        word, _, rest = line.partition(" ")
        if word == "edit":
            name, _, text = rest.partition(" ")
            self.tool("Edit", {"file": name})
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            with open(name, "a") as f:
                f.write(text + "\n")
        elif word == "commit":
            self.run("git", "add", "-A")
            self.run("git", "commit", "-q", "-m", rest)
        elif word == "git":
            self.run("git", *shlex.split(rest))
        elif word == "cat":
            with open(rest) as f:
                self.say(f.read().strip())
        elif word == "show":
            self.say(os.environ.get(rest, ""))
        elif word == "where":
            self.say(os.getcwd())
        elif word == "touch":
            open(os.path.expandvars(rest), "a").close()
        elif word == "until":
            while not os.path.exists(os.path.expandvars(rest)):
                time.sleep(0.02)
        elif word == "sleep":
            time.sleep(float(rest))
        elif word == "write":
            sys.stdout.write("x" * int(rest) + "\n")
        elif word == "ask":
            self.tool("ask_human", {"question": rest})
            asked = subprocess.run([os.environ["BELAY_BIN"], "agent", "ask", rest], stdout=subprocess.PIPE, text=True)
            if asked.returncode != 0:
                raise SystemExit(3)
            self.say(asked.stdout.strip())
        elif word == "report":
            subprocess.run([os.environ["BELAY_BIN"], "agent", "report", rest], check=True)
        elif word == "fail":
            self.end(True)
            raise SystemExit(int(rest or 1))
        elif line.strip():
            self.say(line)

    def end(self, failed=False):
        if self.stream:
            self.put({
                "type": "result", "subtype": "error_during_execution" if failed else "success", "is_error": failed,
                "num_turns": self.turns, "result": self.last, "total_cost_usd": 0.01,
                "usage": {"input_tokens": 100, "output_tokens": 10 * self.turns + 7},
            })


def main():
    args = [a for a in sys.argv[1:] if a != "--"]
    stream = "--stream-json" in args[:1]
    if stream:
        args = args[1:]
    agent = Agent(stream)
    if stream:
        agent.put({"type": "system", "subtype": "init", "model": "small"})
    for line in (args[-1] if args else sys.stdin.read()).splitlines():
        agent.line(line)
    agent.end()


if __name__ == "__main__":
    main()
