"""KernelBot, as far as the service asks it: this one id is good, and those that begin with it."""

import http.server
import threading


def start(good_id):
    """Returns its port."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            good = self.headers.get("X-Popcorn-Cli-Id", "").startswith(good_id)
            self.send_response(200 if good else 401)
            self.end_headers()
            self.wfile.write(b"[]" if good else b'{"detail":"Invalid or unauthorized auth header"}')

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    # Whoever asks may hang up first.
    server.handle_error = lambda *arguments: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]
