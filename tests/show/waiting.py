"""waiting.py - answers on a port of this machine, which it prints: /wait, once /done was asked for. A page
with a picture of /wait is loaded only then."""
import http.server
import threading

done = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/done":
            done.set()
        else:
            done.wait(300)
            done.clear()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
