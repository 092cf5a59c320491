"use strict";
// One job, large: its files, and everything that is known about it.

const viewer = (() => {
  const dialog = document.getElementById("viewer");
  const { element, ofUser } = cards;
  let index = 0;
  let key = null;
  let shown = 0; // the file of the job

  function bytes(count) {
    if (!count) return "";
    const units = ["bytes", "kB", "MB", "GB"];
    const power = Math.min(units.length - 1, Math.floor(Math.log10(count) / 3));
    return `${(count / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
  }

  function about(file) {
    if (!file) return "";
    return [
      file.width && `${file.width} × ${file.height}`,
      file.duration && `${file.duration} s`,
      file.fps && `${file.fps} fps`,
      file.type.startsWith("video/") && (file.sound ? "with sound" : file.sound === false && "without sound"),
      bytes(file.bytes),
      file.type,
    ].filter(Boolean).join(" · ");
  }

  function moment(text) {
    return text ? new Date(text).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : "";
  }

  function facts(job, file) {
    const list = element("dl", "known");
    const add = (name, value, label = element) => {
      if (!value) return;
      const row = element("div", "");
      row.append(ofUser("dt", "", name), label("dd", "", value));
      list.append(row);
    };
    const state = element("dd", "state");
    state.append(cards.mark(job.state), ` ${cards.word(job.state)}`);
    const row = element("div", "");
    row.append(element("dt", "", "State"), state);
    list.append(row);
    add("Reason", job.reason, ofUser);
    add("Code", job.code, ofUser);
    add("Model", job.model, ofUser);
    add("Asked for", job.asked, ofUser);
    add("File", about(file));
    add("Cost", job.cost !== null && `${job.cost} USD`);
    add("Quoted", job.quoted !== null && `${job.quoted} USD`);
    add("Sent", moment(job.sent));
    add("Ended", moment(job.ended));
    add("Generation", job.id, ofUser);
    for (const [name, value] of job.fields) add(name, value, ofUser);
    return list;
  }

  function media(job, file) {
    const stage = element("div", "stage");
    const poster = file?.thumb;
    if (file?.href && file.type.startsWith("video/")) {
      const video = element("video", "media");
      Object.assign(video, { controls: true, loop: true, playsInline: true, src: file.href });
      if (poster) video.poster = poster;
      stage.append(video);
      if (!matchMedia("(prefers-reduced-motion: reduce)").matches) video.play().catch(() => {});
    } else if (file?.href || poster) {
      const image = element("img", "media");
      image.alt = job.prompt;
      image.src = file.href ?? poster;
      image.addEventListener("error", () => {
        if (poster && image.src !== poster) image.src = poster;
      }, { once: true });
      stage.append(image);
    } else {
      const note = element("div", "none");
      note.append(cards.mark(job.state), element("strong", "", cards.WORDS[job.state]));
      stage.append(note);
    }
    return stage;
  }

  function button(label, text, press, className = "") {
    const made = element("button", className, text);
    made.type = "button";
    made.setAttribute("aria-label", label);
    made.addEventListener("click", press);
    return made;
  }

  function draw() {
    const job = grid.jobs[index];
    const file = job.files[shown];
    key = job.key;
    const title = ofUser("h2", "", job.row);
    title.id = "viewer-title";
    if (job.sample > 1) title.append(` #${job.sample}`);
    const place = element("span", "place", `${(index + 1).toLocaleString()} of ${grid.jobs.length.toLocaleString()}`);
    const bar = element("div", "bar");
    bar.append(
      button("Previous job", "←", () => move(-1)), button("Next job", "→", () => move(1)), place,
      button("Close", "×", () => dialog.close(), "close"),
    );
    const side = element("div", "side");
    side.append(bar, title, ofUser("p", "prompt", job.prompt));
    if (job.files.length > 1) {
      const files = element("p", "files");
      job.files.forEach((_, number) => {
        const choice = button(`File ${number + 1}`, String(number + 1), () => {
          shown = number;
          draw();
        });
        choice.setAttribute("aria-pressed", String(number === shown));
        files.append(choice);
      });
      side.append(files);
    }
    side.append(facts(job, file));
    if (file) {
      const address = file.href ? element("a", "address", "Open the file") : ofUser("code", "address", file.url);
      if (file.href) {
        address.href = file.href;
        address.target = "_blank";
        address.rel = "noopener";
      }
      side.append(address);
    }
    const focused = dialog.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    dialog.replaceChildren(media(job, file), side);
    const wanted = [...dialog.querySelectorAll("button")].find((each) => each.getAttribute("aria-label") === focused);
    (wanted ?? dialog.querySelector(".close")).focus();
  }

  function move(step) {
    const next = index + step;
    if (next < 0 || next >= grid.jobs.length) return;
    [index, shown] = [next, 0];
    draw();
  }

  function open(at) {
    [index, shown] = [at, 0];
    dialog.showModal();
    draw();
  }

  // The jobs have changed below: the viewer stays at its job.
  function refresh() {
    if (!dialog.open) return;
    const now = grid.jobs.findIndex((job) => job.key === key);
    if (now >= 0) index = now;
  }

  dialog.addEventListener("keydown", (event) => {
    if (event.target.closest("video")) return;
    if (event.key === "ArrowLeft") move(-1);
    else if (event.key === "ArrowRight") move(1);
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => {
    dialog.replaceChildren();
    grid.focus(index);
  });

  return { open, refresh };
})();
