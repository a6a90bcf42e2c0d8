"""A server for clients that are moved: GET /N gives a text that depends on N, GET /big/N gives N
megabytes, POST /sum gives the checksum of what was sent."""
import http.server
import zlib


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    block = bytes(range(256)) * 4096

    def do_GET(self):
        if self.path.startswith("/big/"):
            count = int(self.path[5:])
            self.answer_head(count * len(self.block))
            for number in range(count):
                self.wfile.write(self.block[number % 251:] + self.block[:number % 251])
        else:
            number = int(self.path[1:])
            body = f"text number {number}\n".encode() * (100 + number % 1900)
            self.answer_head(len(body))
            self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = str(zlib.crc32(body)).encode()
        self.answer_head(len(answer))
        self.wfile.write(answer)

    def answer_head(self, length):
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *arguments):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"ready 127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
