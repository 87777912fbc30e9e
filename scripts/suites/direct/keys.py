"""Sets keys in a Redis server until it is gone, and prints each that was acknowledged; or gets the
keys that it reads, and fails if one is not there: keys.py SOCKET ROUND set|get."""
import socket
import sys

path, number, what = sys.argv[1:]
server = socket.socket(socket.AF_UNIX)
server.connect(path)
replies = server.makefile("rb")


def value(key):
    return f"value of {key} " * 10


def ask(*words):
    parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
    server.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
    return replies.readline().rstrip().decode()


def set_all():
    for n in range(1_000_000):
        key = f"{number}-{n}"
        try:
            reply = ask("SET", key, value(key))
        except OSError:
            return
        if reply != "+OK":
            return
        print(key, flush=True)


def get_all():
    keys = sys.stdin.read().split()
    for key in keys:
        length = ask("GET", key)
        if not length.startswith("$") or length == "$-1":
            sys.exit(f"{key}: {length}")
        found = replies.read(int(length[1:]) + 2)[:-2].decode()
        if found != value(key):
            sys.exit(f"{key}: {found}")
    print(len(keys), "keys are there")


set_all() if what == "set" else get_all()
