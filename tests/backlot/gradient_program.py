"""Makes images and videos with Pillow and PyAV alone: the prompt on a gradient. For trials, without a GPU.

command: ["python", "gradient_program.py"]
"""

import json
import random
import sys

import av
from PIL import Image, ImageDraw

for line in sys.stdin:
    order = json.loads(line)
    size = (order["width"], order["height"])
    chance = random.Random(order["seed"])
    if order["images"] and "path" in order["images"][0]:  # the others have a `url`, which nobody has fetched
        picture = Image.open(order["images"][0]["path"]).convert("RGB").resize(size)
    else:
        tones = [Image.new("RGB", size, (chance.randrange(256), chance.randrange(256), 90)) for _ in range(2)]
        picture = Image.composite(*tones, Image.linear_gradient("L").resize(size))
    ImageDraw.Draw(picture).text((10, 10), order["prompt"], "white", stroke_width=1, stroke_fill="black")
    if order["duration"] is None:
        picture.save(order["output"])
    else:
        with av.open(order["output"], "w") as container:
            video = container.add_stream("libx264", rate=order["fps"])
            video.width, video.height, video.pix_fmt = *size, "yuv420p"
            sound = container.add_stream("aac", rate=44100, layout="mono") if order["sound"] else None
            for number in range(order["duration"] * order["fps"]):
                ImageDraw.Draw(picture).line([(number, size[1] - 5), (number, size[1])], "white")
                container.mux(video.encode(av.VideoFrame.from_image(picture)))
            container.mux(video.encode())
            for number in range(order["duration"] * 44100 // 1024 if sound else 0):
                silence = av.AudioFrame("fltp", "mono", 1024)
                silence.planes[0].update(bytes(4096))
                silence.sample_rate, silence.pts = 44100, number * 1024
                container.mux(sound.encode(silence))
            container.mux(sound.encode() if sound else [])
    print("{}", flush=True)
