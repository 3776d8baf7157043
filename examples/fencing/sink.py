#!/usr/bin/env python3
"""An HTTP service that refuses a stale owner: PUT /things/NAME with the headers
Fencing-Scope (the execution) and Fencing-Token. A token lower than the highest seen of
that scope gets the status 412. Usage: sink.py [PORT]; it prints its address.

The highest token must be as durable as the data that it protects: here both are in memory.
"""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

highest, things, lock = {}, {}, threading.Lock()


class Handler(BaseHTTPRequestHandler):
    def do_PUT(self):
        size = self.headers.get("Content-Length", "0")
        if not size.isdigit() or int(size) > 1 << 20:
            return self.answer(413, "at most a megabyte\n")
        body = self.rfile.read(int(size))
        scope, token = self.headers.get("Fencing-Scope", ""), self.headers.get("Fencing-Token", "")
        if not scope or not token.isdigit():
            return self.answer(428, "name the scope and the token\n")
        with lock:  # compare and write under one lock
            if int(token) < highest.get(scope, 0):
                return self.answer(412, f"token {token} is stale; {highest[scope]} was seen\n")
            highest[scope] = int(token)
            things[self.path] = body
        self.answer(200, "ok\n")

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
