"use strict";
// One job, large: its files, what these are made from, and everything that is known about it.

const viewer = (() => {
  const dialog = at("viewer");
  const WAYS = ["", "beside", "wipe"];
  const BYTES = new Intl.NumberFormat(undefined, { style: "unit", unit: "byte", notation: "compact" });
  const { element, ofUser } = cards;
  let job = null;
  let shown = 0; // the file of the job
  let moved = () => {};
  let way = 0; // of `WAYS`, how what it is made from is shown
  let stage; // what is on the stage: a video that is marked plays on, a text that is selected stays so

  function about(file) {
    if (!file) return "";
    return [
      file.width && `${file.width} × ${file.height}`,
      file.duration && `${file.duration} s`,
      file.fps && `${file.fps} fps`,
      file.mime_type.startsWith("video/") && (file.has_sound ? "with sound" : file.has_sound === false && "without sound"),
      BYTES.format(file.bytes),
      file.mime_type,
    ].filter(Boolean).join(" · ");
  }

  function moment(text) {
    return text ? new Date(text).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : "";
  }

  // What the request asked for: as it was sent, where no file says more.
  function asked(job) {
    if (!job.sent) return [["Asked for", job.asked]];
    return Object.entries(job.sent).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]);
  }

  // The file of another batch that the job is made from, in words.
  function origin({ made_from: from }) {
    return from && `${from.batch}: ${from.row}, sample ${from.sample}`;
  }

  function facts(job, file) {
    const hidden = blind.isOn ? [["Blind", "model, settings and cost are hidden until the last decision"]] : [
      ["Reason", file && job.reason],
      ["Code", job.code],
      ["Model", cards.model(job)],
      ...asked(job),
      ["Cost", job.cost !== null && `${job.cost} USD`],
      ["Quoted", job.quoted !== null && `${job.quoted} USD`],
      ["File", about(file)],
      ["Sent", moment(job.submitted_at)],
      ["Ended", moment(job.finished_at)],
      ["Generation", job.generation_id],
    ];
    const known = [
      ["State", ` ${cards.word(job.state)}`],
      ["Decision", file?.decision && [file.decision, file.decided_by && `by ${file.decided_by}`].filter(Boolean).join(" ")],
      ["Note", file?.note],
      ["Flags", file?.flags.filter((flag) => !(blind.isOn && cards.namesModel(flag))).join("\n")],
      ["Score", file?.score ?? null],
      ...hidden,
      ["Made from", origin(job) ?? job.originals.map(({ name }) => name).join("\n")],
      ...job.carried,
    ];
    const rows = known.filter(([, value]) => value || value === 0).map(([name, value]) => {
      const row = element("div");
      row.append(ofUser("dt", "", name), ofUser("dd", "", value));
      return row;
    });
    if (job.made_from?.href) {
      const row = rows.find(({ firstElementChild: name }) => name.textContent === "Made from");
      const link = ofUser("a", "", origin(job));
      row.lastElementChild.replaceChildren(Object.assign(link, { href: job.made_from.href, target: "_blank", rel: "noopener" }));
    }
    const state = rows[0].lastElementChild;
    state.className = "state";
    state.prepend(cards.mark(job.state));
    return rows;
  }

  // A sentence that begins with a command, which one click selects.
  function step(sentence) {
    const [command] = sentence.match(/^callsheet \S+ CONFIG(?: ROW| --set \S+| --\S+)*/) ?? [""];
    const line = element("p", "step");
    line.append(element("code", "", command), sentence.slice(command.length));
    return line;
  }

  // In place of a file: why there is none, and what to do.
  function instead(job) {
    const note = element("div", "none");
    note.tabIndex = 0; // it can be longer than the stage
    note.append(cards.mark(job.state), element("strong", "", cards.WORDS[job.state]));
    if (job.reason) note.append(ofUser("p", "reason", job.reason));
    note.append(...job.steps.map(step));
    return note;
  }

  function media(job, file) {
    const poster = file?.thumbnail;
    if (file?.href && file.mime_type.startsWith("video/")) {
      const video = element("video", "media");
      Object.assign(video, { controls: true, loop: true, playsInline: true, src: file.href });
      if (poster) video.poster = poster;
      if (!matchMedia("(prefers-reduced-motion: reduce)").matches) video.play().catch(() => {});
      return video;
    }
    if (file?.href || poster) {
      const image = Object.assign(element("img", "media"), { alt: job.prompt, src: file.href ?? poster });
      image.addEventListener("error", () => {
        if (poster && image.src !== poster) image.src = poster;
      }, { once: true });
      return image;
    }
    return instead(job);
  }

  // An image that the job is made from, or why it is not here.
  function original({ name, href }) {
    const missing = () => element("p", "none original", `${name} cannot be shown here${href ? ": it is gone, or has changed" : ""}`);
    if (!href) return missing();
    const image = Object.assign(element("img", "media original"), { alt: `Original: ${name}`, src: href });
    image.addEventListener("error", () => image.replaceWith(missing()), { once: true });
    return image;
  }

  // A file and what it is made from: all beside each other, or the first original over it, as far as the line.
  function staged(job, file) {
    const after = media(job, file);
    if (!way || !job.originals.length) return [after];
    if (WAYS[way] === "beside") {
      return [...job.originals.map(original), after].map((each) => {
        const half = element("div", "half");
        half.append(each);
        return half;
      });
    }
    const line = Object.assign(element("input", "wipe"), { type: "range", min: 0, max: 100, value: 50 });
    line.setAttribute("aria-label", "How much of the original is seen");
    const wipe = () => at("stage").style.setProperty("--wipe", `${line.value}%`);
    line.addEventListener("input", wipe);
    line.addEventListener("pointerup", () => dialog.focus());
    wipe();
    return [after, original(job.originals[0]), line];
  }

  // Shows what the job is made from, in the next way.
  function before() {
    way = (way + 1) % WAYS.length;
    draw();
  }

  function choices(job) {
    return job.files.map((_, number) => {
      const choice = element("button", "", String(number + 1));
      choice.type = "button";
      choice.setAttribute("aria-label", `File ${number + 1}`);
      choice.setAttribute("aria-pressed", String(number === shown));
      choice.addEventListener("click", () => {
        shown = number;
        draw();
        at("files").children[number].focus();
      });
      return choice;
    });
  }

  function address(file) {
    if (!file?.href) return file ? ofUser("code", "", file.url) : "";
    const link = element("a", "", "Open the file");
    return Object.assign(link, { href: file.href, target: "_blank", rel: "noopener" });
  }

  function draw() {
    const file = job.files[shown];
    const index = grid.indexOf(job);
    at("place").textContent = index < 0 ? "not in this filter" : `${(index + 1).toLocaleString()} of ${grid.places.length.toLocaleString()}`;
    at("viewer-title").textContent = job.highest > 1 && !blind.isOn ? `${job.row_id} (${job.number} of ${job.highest})` : job.row_id;
    at("viewer-prompt").textContent = job.prompt;
    dialog.dataset.decision = file?.decision ?? "";
    const wanted = `${way} ${file?.url ?? `${job.job_key} ${cards.looks(job)}`}`;
    if (stage !== wanted) at("stage").replaceChildren(...staged(job, file), element("div", "badges"));
    if (document.activeElement === document.body) dialog.focus(); // the line had it
    stage = wanted;
    at("stage").querySelector(".badges").replaceWith(cards.badges(file ? [file] : []));
    at("acts").hidden = !file;
    at("original").hidden = !job.originals.length;
    at("stage").dataset.way = job.originals.length ? WAYS[way] : "";
    at("files").replaceChildren(...choices(job));
    at("files").hidden = job.files.length < 2;
    at("known").replaceChildren(...facts(job, file));
    at("address").replaceChildren(blind.isOn ? "" : address(file)); // which may have the model's name
    at("address").hidden = !file || blind.isOn;
  }

  function show(now, file = 0) {
    [job, shown] = [now, file];
    draw();
    moved();
  }

  // Shows the job at a place; of its files the first, or the first without a decision.
  function go(place, unmarked = false) {
    callsheet.when([place], () => {
      const next = callsheet.job(place);
      show(next, unmarked ? Math.max(0, next.files.findIndex((file) => !file.decision)) : 0);
    });
  }

  function move(step) {
    const next = grid.places[Math.max(0, grid.indexOf(job)) + step];
    if (next !== undefined) go(next);
  }

  function open(wanted, file) {
    if (!dialog.open) dialog.showModal();
    dialog.focus();
    show(wanted, Math.max(0, wanted.files.indexOf(file)));
  }

  // Marks or jobs have changed: the viewer stays at its job and file.
  function refresh() {
    if (!dialog.open) return;
    job = callsheet.job(callsheet.placeOf(job.job_key)) ?? job;
    draw();
  }

  // The next file without a decision, of this job or of another one that is wanted. As a function that goes there.
  function next(job, isWanted) {
    const here = isWanted ? -1 : job.files.findIndex((file, index) => index !== shown && !file.decision);
    if (here >= 0) return () => show(job, here);
    const after = grid.nextUnmarked(job, isWanted);
    return () => after !== undefined && go(after, true);
  }

  dialog.addEventListener("keydown", (event) => {
    if (event.target.closest("video, input")) return;
    if (event.key === "ArrowLeft") move(-1);
    else if (event.key === "ArrowRight") move(1);
    else if (event.key === " " && event.target === dialog) {
      event.preventDefault();
      dialog.close();
    }
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => {
    at("stage").replaceChildren();
    stage = undefined;
    way = 0;
    moved();
    if (!compare.isOpen) grid.focusOn(job);
  });
  at("previous").addEventListener("click", () => move(-1));
  at("next").addEventListener("click", () => move(1));

  return {
    open, refresh, next, before, media, origin,
    close: () => dialog.close(),
    onMove(call) {
      moved = call;
    },
    get isOpen() {
      return dialog.open;
    },
    get target() {
      return { job, files: job.files.slice(shown, shown + 1) };
    },
  };
})();
