"""Prints the test programs that cargo names in its messages, one a line."""

import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
        print(message["executable"])
