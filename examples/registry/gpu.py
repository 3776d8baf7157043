#!/usr/bin/env python3
"""A fake GPU with a model server: it has one model loaded, and loading another one takes a while.

POST /load/MODEL loads a model. POST /generate/MODEL does a piece of work; it fails (409) if another model is loaded, or
is loaded meanwhile. GET /stats counts loads, pieces and failures.
"""

import http.server
import json
import threading
import time


class GPU:
    def __init__(self):
        self.lock = threading.Lock()
        self.model, self.loading, self.working = None, None, 0
        self.stats = {"loads": 0, "pieces": {}, "failures": 0, "collisions": 0}

    def load(self, model):
        with self.lock:
            if self.model == model:
                return True
            if self.working or self.loading:  # the work of others would be lost
                self.stats["collisions"] += 1
            self.model, self.loading = None, model
        time.sleep(0.2)
        with self.lock:
            self.model, self.loading = model, None
            self.stats["loads"] += 1
        return True

    def generate(self, model):
        with self.lock:
            ok = self.model == model
            self.working += 1
        time.sleep(0.05)
        with self.lock:
            self.working -= 1
            ok = ok and self.model == model
            if ok:
                self.stats["pieces"][model] = self.stats["pieces"].get(model, 0) + 1
            else:
                self.stats["failures"] += 1
        return ok


class Handler(http.server.BaseHTTPRequestHandler):
    gpu = GPU()

    def do_POST(self):
        _, what, model = self.path.split("/")
        ok = {"load": self.gpu.load, "generate": self.gpu.generate}[what](model)
        self.answer(200 if ok else 409, {"ok": ok})

    def do_GET(self):
        with self.gpu.lock:
            self.answer(200, self.gpu.stats)

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
