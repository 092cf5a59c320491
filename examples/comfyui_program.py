"""Makes images with a ComfyUI server on this machine, by a workflow that it has exported ("Export (API)").

    command: ["python", "examples/comfyui_program.py", "workflow.json", "http://127.0.0.1:8188"]

In the workflow, write "%seed%", "%width%" and "%height%" for these numbers, and %prompt% in a text. Of its
images, the first is taken. Needs httpx and Pillow, which Callsheet has brought.
"""

import io
import json
import sys
import time
from pathlib import Path

import httpx
from PIL import Image

workflow = json.loads(Path(sys.argv[1]).read_text("utf-8"))
server = httpx.Client(base_url=sys.argv[2], timeout=60, trust_env=False)


def filled(part, order):
    """A part of the workflow with what was asked for."""
    if isinstance(part, dict):
        return {name: filled(value, order) for name, value in part.items()}
    if isinstance(part, list):
        return [filled(value, order) for value in part]
    numbers = {f"%{name}%": order[name] for name in ("seed", "width", "height")}
    return numbers.get(part, part.replace("%prompt%", order["prompt"])) if isinstance(part, str) else part


for line in sys.stdin:
    order = json.loads(line)
    answered = server.post("/prompt", json={"prompt": filled(workflow, order)}).raise_for_status().json()
    while not (done := server.get(f"/history/{answered['prompt_id']}").json().get(answered["prompt_id"])):
        time.sleep(0.5)
    images = [image for node in done["outputs"].values() for image in node.get("images", [])]
    if images:
        file = server.get("/view", params=images[0]).raise_for_status().content
        size = (order["width"], order["height"])
        Image.open(io.BytesIO(file)).convert("RGB").resize(size).save(order["output"])
    error = {"error": f"ComfyUI made no image: {done.get('status', {}).get('messages')}"}
    print(json.dumps({} if images else error), flush=True)
