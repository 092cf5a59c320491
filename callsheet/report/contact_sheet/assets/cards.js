"use strict";
// One card: a job with its picture, or why it has none. Every text from users is set as text, never as HTML.

const cards = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const WAIT = 150; // ms that the pointer rests on a video before it plays
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const WORDS = {
    planned: "Not bought yet",
    submitting: "Sent, no answer yet",
    pending: "The service is making it",
    generated: "Paid for, being downloaded",
    stored: "No preview",
    failed: "Failed",
    in_doubt: "In doubt: it may have been paid for",
    lost: "Lost: paid for, and the file cannot be had",
  };

  // A state or a setting, in words.
  function word(name) {
    return name.replaceAll("_", " ");
  }

  function mark(state) {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("class", "mark");
    svg.setAttribute("aria-hidden", "true");
    svg.dataset.state = state;
    const symbol = at(`mark-${state}`);
    svg.setAttribute("viewBox", symbol.getAttribute("viewBox"));
    svg.append(...symbol.cloneNode(true).childNodes); // a `use` would cost several times as much
    return svg;
  }

  function element(name, className = "", text = "") {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text;
    return made;
  }

  function ofUser(name, className, text) {
    const made = element(name, className, text);
    made.dir = "auto";
    return made;
  }

  function seconds(duration) {
    const whole = Math.round(duration);
    return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
  }

  // Everything that a card shows but marks, so that one that has not changed is not made again.
  function looks(job) {
    return JSON.stringify([job.job_key, job.state, job.cost, job.reason, job.row_id, job.number, job.highest, job.prompt, job.files.map((file) => [file.thumbnail, file.url])]);
  }

  // Where a job will be shown, when its part is here.
  function blank() {
    const card = element("article", "card blank");
    card.append(element("div", "frame"));
    return card;
  }

  function make(job) {
    const card = element("article", "card");
    card.dataset.rowId = job.row_id;
    card.dataset.state = job.state;
    card.job = job;
    card.looks = looks(job);
    const frame = element("div", "frame");
    const title = ofUser("h2", "row", job.row_id);
    title.id = `row-${job.job_key}`;
    card.setAttribute("aria-labelledby", title.id);
    const sample = job.highest > 1 ? ` ${job.number} of ${job.highest}` : "";
    const head = element("div", "head");
    const cost = element("span", "cost", job.cost ?? (job.quoted === null ? "" : `(${job.quoted})`));
    cost.title = job.cost === null ? "quoted, in US dollars" : "in US dollars";
    head.append(title, element("span", "sample", sample), cost);
    const state = element("span", "state");
    state.append(mark(job.state), ` ${word(job.state)}`);
    const facts = element("p", "facts");
    const [file] = job.files;
    const size = file?.width && file.height ? `${file.width} × ${file.height}` : job.asked;
    facts.append(state, ofUser("span", "what", [model(job), size].filter(Boolean).join(" · ")));
    card.append(frame, head, ofUser("p", "prompt", job.prompt), facts);
    fill(card);
    dress(card);
    if (file?.mime_type.startsWith("video/") && file.href) plays(card, file);
    return card;
  }

  // The model of a job: the one that was delivered, and which was ordered where that is another one.
  function model(job) {
    return job.model_delivered ? `${job.model_delivered} (ordered ${job.model})` : job.model;
  }

  // A setting of a request, as text that says by itself what is meant.
  function setting(name, value) {
    if (name === "duration") return `${value} s`;
    if (name === "sound") return value === "true" ? "with sound" : "without sound";
    return value;
  }

  // Whether a flag says which model a file is from: a blind page does not show it.
  function namesModel(flag) {
    return flag.startsWith("model: ");
  }

  // What is decided about files and what checks found, as small signs.
  function badges(files) {
    const made = element("div", "badges");
    for (const decision of new Set(files.map((file) => file.decision).filter(Boolean))) {
      const count = files.filter((file) => file.decision === decision).length;
      const word = count < files.length ? `${count} of ${files.length} ${decision}` : decision;
      made.append(Object.assign(element("span", "decision", word), { title: files.find((file) => file.decision === decision).decided_by ?? "" }));
      made.lastElementChild.dataset.decision = decision;
    }
    const flags = files.flatMap((file) => file.flags);
    for (const [kind, listed] of [["", flags.filter((flag) => !namesModel(flag))], [" names-model", flags.filter(namesModel)]]) {
      if (!listed.length) continue;
      const sign = ofUser("span", `decision${kind}`, listed.length > 1 ? `${listed.length} flags` : listed[0]);
      sign.dataset.decision = "flagged";
      sign.title = listed.join("\n");
      made.append(sign);
    }
    return made;
  }

  // Shows the marks of the job as they are now.
  function dress(card) {
    const { files } = card.job;
    const isSelected = card.classList.contains("selected");
    const now = JSON.stringify([isSelected, ...files.map(({ decision, note, flags, decided_by }) => [decision, note, flags, decided_by])]);
    if (card.dressed === now) return;
    card.dressed = now;
    card.dataset.decision = marks.of(card.job);
    card.querySelector(".badges")?.remove();
    card.querySelector(".note")?.remove();
    const note = files.find((file) => file.note)?.note;
    card.append(badges(files));
    if (note) card.append(Object.assign(ofUser("p", "note", note), { title: note }));
    const words = [isSelected && "selected", marks.of(card.job), files.some((file) => file.flags.length) && "flagged", note].filter(Boolean);
    card.setAttribute("aria-description", words.join(", "));
  }

  // Puts the thumbnail into the frame; without one, words.
  function fill(card) {
    const { job } = card;
    const frame = card.querySelector(".frame");
    const file = job.files.find((each) => each.thumbnail) ?? job.files[0];
    if (file?.thumbnail && !card.unshown) {
      const image = element("img", "picture");
      Object.assign(image, { alt: "", decoding: "async", loading: "lazy", draggable: false, src: file.thumbnail });
      image.addEventListener("error", () => {
        card.unshown = true; // the thumbnail is not there any more
        fill(card);
      }, { once: true });
      frame.replaceChildren(image);
    } else {
      const note = element("div", "none");
      note.append(mark(job.state), element("strong", "", WORDS[job.state]));
      if (job.reason) note.append(ofUser("span", "reason", job.reason));
      frame.replaceChildren(note);
    }
    const badges = [];
    if (job.type === "video") badges.push(`▶ ${file?.duration ? seconds(file.duration) : "video"}`);
    if (job.files.length > 1) badges.push(`${job.files.length} files`);
    if (badges.length) frame.append(element("span", "badge", badges.join(" · ")));
  }

  // The video plays while the pointer or the focus is on the card, unless the system asks for less motion.
  function plays(card, file) {
    const frame = card.querySelector(".frame");
    let timer;
    const begin = () => {
      if (still.matches || frame.querySelector("video")) return;
      clearTimeout(timer);
      timer = setTimeout(() => {
        const video = element("video", "picture");
        Object.assign(video, { muted: true, loop: true, playsInline: true, src: file.href });
        video.addEventListener("playing", () => video.classList.add("playing"), { once: true });
        video.addEventListener("error", () => video.remove(), { once: true });
        frame.append(video);
        video.play().catch(() => video.remove()); // it was left again
      }, WAIT);
    };
    const end = () => {
      clearTimeout(timer);
      const video = frame.querySelector("video");
      if (!video || card.matches(":hover, :focus")) return;
      video.remove();
      video.removeAttribute("src");
      video.load();
    };
    card.addEventListener("pointerenter", begin);
    card.addEventListener("focus", begin);
    card.addEventListener("pointerleave", end);
    card.addEventListener("blur", end);
  }

  // A table with these heads; each line begins with what it is about, in words of the batch.
  function table(heads, lines) {
    const made = element("table");
    made.createTHead().insertRow().append(...heads.map((head) => Object.assign(element("th", "", head), { scope: "col" })));
    const body = made.createTBody();
    for (const [first, ...values] of lines) {
      const texts = values.map((value) => element("td", "", value.toLocaleString()));
      body.insertRow().append(Object.assign(ofUser("th", "", first), { scope: "row" }), ...texts);
    }
    return made;
  }

  return { make, blank, table, looks, dress, badges, namesModel, mark, model, word, setting, element, ofUser, WORDS };
})();
