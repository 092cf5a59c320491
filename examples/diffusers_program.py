"""Makes images with a folder of weights, by diffusers: from text, or from the first reference image.

    command: ["python", "examples/diffusers_program.py", "/weights/stable-diffusion-xl"]

Needs torch, diffusers, transformers and accelerate in the environment of this `python`.
"""

import json
import sys

import torch
from diffusers import AutoPipelineForImage2Image, AutoPipelineForText2Image
from PIL import Image

device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
kind = torch.float32 if device == "cpu" else torch.float16
from_text = AutoPipelineForText2Image.from_pretrained(sys.argv[1], torch_dtype=kind).to(device)
from_image = AutoPipelineForImage2Image.from_pipe(from_text)  # the same weights, once in memory

for line in sys.stdin:
    order = json.loads(line)
    size = (order["width"], order["height"])
    whole = tuple(-(-side // 8) * 8 for side in size)  # these models make multiples of 8 pixels
    asked = {"prompt": order["prompt"], "generator": torch.Generator().manual_seed(order["seed"])}
    paths = [image["path"] for image in order["images"] if "path" in image]
    answer = {}
    if order["duration"] is not None:
        answer = {"error": "This program makes images alone.", "code": "invalid_parameter"}
    elif len(paths) < len(order["images"]):
        answer = {"error": "This program fetches no URLs.", "code": "invalid_parameter"}
    else:
        if paths:
            made = from_image(image=Image.open(paths[0]).convert("RGB").resize(whole), strength=0.6, **asked)
        else:
            made = from_text(width=whole[0], height=whole[1], **asked)
        if any(getattr(made, "nsfw_content_detected", None) or []):
            answer = {
                "error": "The image does not pass the safety check.",
                "code": "content_policy_violation",
            }
        made.images[0].crop((0, 0, *size)).save(order["output"])
    print(json.dumps(answer), flush=True)
