"""A stand-in for Northflank's API, as far as the documentation of it tells: it keeps one project's services."""

import http.server
import json
import threading

TOKEN = "token-of-northflank"


class Northflank:
    def __init__(self):
        """`services` by id, `changes` in the order of their arrival."""
        self.services, self.changes = {}, []
        northflank = self

        class Answer(http.server.BaseHTTPRequestHandler):
            def answer(self, status, body):
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def serve(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    return self.answer(401, {"error": {"status": 401, "message": "Invalid token"}})
                return self.answer(*northflank.answer(self.command, self.path.split("/")[1:], body))

            do_GET = do_POST = do_PATCH = serve

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, method, path, body):
        match [method, *path]:
            case ["GET", "v1", "projects", "gpu", "services", name] if name in self.services:
                shown = {key: value for key, value in self.services[name].items() if key != "runtimeEnvironment"}
                return 200, {"data": {"id": name, **shown}}
            case ["GET", "v1", "projects", "gpu", "services", name, "runtime-environment"] if name in self.services:
                return 200, {"data": {"runtimeEnvironment": self.services[name]["runtimeEnvironment"]}}
            case ["POST", "v1", "projects", "gpu", "services", "combined"]:
                if "refuse" in body["name"]:
                    return 400, {"error": {"status": 400, "message": f"not accepted: {body['runtimeEnvironment']}"}}
                name = body["name"].lower().replace(" ", "-")
                self.services[name] = body
                self.changes.append((method, body))
                return 200, {"data": {"id": name}}
            case ["PATCH", "v1", "projects", "gpu", "services", "combined", name] if name in self.services:
                self.services[name] = {**self.services[name], **body}
                self.changes.append((method, body))
                return 200, {"data": {"id": name}}
        return 404, {"error": {"status": 404, "message": "not found"}}
