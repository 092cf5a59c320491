"use strict";
// Pixel for pixel: a click on an image shows it so, and all beside it, at the same part of each; the pointer moves that.

const zoom = (() => {
  const STEP = 0.1; // of the image, for a key
  let at = [0.5, 0.5]; // the part that is shown: shares of width and height
  let isTap = false; // by which a file is chosen

  function look(dialog, x, y) {
    at = [x, y].map((share) => Math.min(1, Math.max(0, share)));
    dialog.style.setProperty("--x", `${100 * at[0]}%`);
    dialog.style.setProperty("--y", `${100 * at[1]}%`);
  }

  function lookUnder(dialog, event) {
    const stage = event.target.closest(".stage")?.getBoundingClientRect();
    if (stage) look(dialog, (event.clientX - stage.left) / stage.width, (event.clientY - stage.top) / stage.height);
  }

  function toggle(dialog) {
    look(dialog, 0.5, 0.5);
    dialog.classList.toggle("zoomed");
  }

  for (const dialog of document.querySelectorAll("#viewer, #compare")) {
    dialog.addEventListener("pointerdown", ({ pointerType, target }) => {
      isTap = pointerType === "touch" && target.closest(".tile")?.tabIndex === -1;
    }, true);
    dialog.addEventListener("click", (event) => {
      if (!event.target.matches("img.media") || isTap) return;
      toggle(dialog);
      lookUnder(dialog, event);
    });
    dialog.addEventListener("pointermove", (event) => dialog.classList.contains("zoomed") && lookUnder(dialog, event));
    dialog.addEventListener("keydown", (event) => {
      const [x, y] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [];
      if (x === undefined || !event.shiftKey || !dialog.classList.contains("zoomed")) return;
      event.stopImmediatePropagation();
      look(dialog, at[0] + STEP * x, at[1] + STEP * y);
    }, true);
    dialog.addEventListener("close", () => dialog.classList.remove("zoomed"));
  }

  return { toggle };
})();
