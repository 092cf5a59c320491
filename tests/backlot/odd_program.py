"""Does what the first word of the prompt says; without such a word, what gradient_program does."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image

notes = Path(sys.argv[1])  # a folder: what it was asked, and its processes

gradient = Path(__file__).with_name("gradient_program.py")
pipe = subprocess.PIPE
maker = subprocess.Popen([sys.executable, str(gradient)], stdin=pipe, stdout=pipe, text=True)
with (notes / "pids").open("a") as file:
    print(os.getpid(), maker.pid, file=file)

for line in sys.stdin:
    order = json.loads(line)
    with (notes / "asked").open("a") as file:
        file.write(line)
    output, size, answer = Path(order["output"]), (order["width"], order["height"]), "{}"
    match order["prompt"].split()[0]:
        case "die":
            sys.exit("out of memory")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
        case "chat":
            answer = "Loading the model"
        case "code":
            answer = '{"error": "x", "code": "nothing_known"}'
        case "refuse":
            answer = '{"error": "Not this one.", "code": "content_policy_violation"}'
        case "fail":
            answer = '{"error": "The disk is full."}'
        case "nothing":
            pass
        case "empty":
            output.touch()
        case "other":
            Image.new("RGB", size).save(output, "gif")
        case "cut":
            Image.effect_noise(size, 90).save(output)
            output.write_bytes(output.read_bytes()[:-500])
        case "small":
            Image.new("RGB", (8, 8)).save(output)
        case "outside":
            Image.new("RGB", size).save(notes / "outside.png")
            output.symlink_to(notes / "outside.png")
        case word:
            while word == "wait" and not (notes / "go").exists():
                time.sleep(0.02)
            if word == "short" or word == "silent":
                order |= {"duration": 1} if word == "short" else {"sound": False}
            maker.stdin.write(json.dumps(order) + "\n")
            maker.stdin.flush()
            maker.stdout.readline()
    print(answer, flush=True)
