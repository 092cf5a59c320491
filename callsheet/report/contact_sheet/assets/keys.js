"use strict";
// What keys and buttons do: they mark what is selected in the grid, or what is chosen there, in the viewer or in the
// comparison, whichever is on top. After a mark the next file without one is chosen.

const keys = (() => {
  const noting = at("noting");
  const help = at("help");
  const CLEAR = { decision: null, note: null };
  const onTop = () => [viewer, compare].find((each) => each.isOpen) ?? grid;
  let say = () => {};

  // Calls with the files that are meant, each {job, file}; at once, where their jobs are here.
  async function withMeant(call) {
    const { job, files = [] } = onTop().target ?? {};
    const places = onTop() === grid ? grid.selected : [];
    if (!places.length) return job && call(files.map((file) => ({ job, file })), job);
    const jobs = await callsheet.gather(places);
    if (jobs.length < places.length) say(`${places.length - jobs.length} jobs could not be loaded: they are not marked.`);
    return call(callsheet.filesOf(jobs), job ?? jobs[0]); // the one that has the focus may not be here yet
  }

  function decide(decision) {
    const where = onTop();
    withMeant((meant, job) => {
      if (!meant.length) {
        say(`Nothing is stored of ${grid.selected.length ? "what is selected" : job.row_id}, so there is nothing to mark.`);
        return;
      }
      const go = decision ? where.next(job) : () => where === grid && grid.focusOn(job);
      marks.set(meant.map((each) => ({ ...each, change: decision ? { decision } : CLEAR })));
      go();
      sayIfAll();
    });
  }

  // Keeps what is meant, and rejects all else of its rows.
  function keepAlone() {
    const where = onTop();
    withMeant(async (meant, job) => {
      if (!meant.length) return;
      const places = new Set(meant.flatMap((each) => callsheet.row(each.job)));
      const go = where.next(job, grid.isOfOtherRow(job));
      const kept = new Set(meant.map(marks.name));
      const all = callsheet.filesOf(await callsheet.gather([...places]));
      const decision = (each) => (kept.has(marks.name(each)) ? "kept" : "rejected");
      marks.set(all.map((each) => ({ ...each, change: { decision: decision(each) } })));
      go();
      sayIfAll();
    });
  }

  function sayIfAll() {
    if (!marks.reviewed().to_review && !at("reveal").open) say("Every stored file is marked.");
  }

  function note() {
    const before = document.activeElement;
    withMeant((meant, job) => {
      if (!meant.length) return;
      const text = at("note");
      at("note-title").textContent = meant.length > 1 ? `Note on ${meant.length.toLocaleString()} files` : "Note";
      text.value = meant.find(({ file }) => file.note)?.file.note ?? "";
      noting.save = () => marks.set(meant.map((each) => ({ ...each, change: { note: text.value.trim() || null } })));
      // The browser gives the focus back at once; this event may come after the next keys.
      noting.addEventListener("close", () => before?.isConnected || grid.focusOn(job), { once: true });
      noting.showModal();
      text.select();
    });
  }

  function undo() {
    const isMark = marks.undo((job, file) => {
      if (viewer.isOpen) viewer.open(job, file);
      else if (compare.isOpen) compare.open(job, file);
      else grid.focusOn(job);
    });
    if (!isMark) say("This page has no mark to undo.");
  }

  function comparison() {
    if (compare.isOpen && !viewer.isOpen) return compare.close();
    const { job, files } = onTop().target ?? {};
    if (!job?.files.length) return null;
    viewer.close();
    return compare.open(job, files.length === 1 ? files[0] : null);
  }

  function otherBatch() {
    const { job } = onTop().target ?? {};
    if (job?.made_from?.href) window.open(job.made_from.href, "_blank", "noopener");
    else if (job) say(job.made_from ? `Made from ${viewer.origin(job)}.` : "This is not made from a file of another batch.");
  }

  // What the job is made from, in full size.
  function showOriginal() {
    const { job, files } = onTop().target ?? {};
    if (!job) return;
    if (!job.originals.length) {
      say("This is not made from an image.");
      return;
    }
    if (!viewer.isOpen) viewer.open(job, files[0]);
    viewer.before();
  }

  const ACTS = {
    k: () => decide("kept"),
    "shift+k": keepAlone,
    x: () => decide("rejected"),
    u: () => decide(null),
    n: note,
    c: comparison,
    b: () => blind.toggle() && say("Blind: models, settings and costs are hidden until the last decision."),
    m: otherBatch,
    o: showOriginal,
    digit1: () => onTop() !== grid && zoom.toggle(viewer.isOpen ? at("viewer") : at("compare")),
    z: undo,
    "ctrl+z": undo,
    "ctrl+a": () => onTop() === grid && grid.selectAll(),
    "?": () => help.showModal(),
  };

  function start(tell) {
    say = tell;
    document.addEventListener("keydown", (event) => {
      if (event.altKey || event.repeat) return;
      if (event.target.closest?.("input:not(.wipe), select, textarea") || at("reveal").open || noting.open || help.open) return;
      const letter = /^[a-z?]$/i.test(event.key) ? event.key.toLowerCase() : event.code.replace("Key", "").toLowerCase();
      const name = event.ctrlKey || event.metaKey ? `ctrl+${letter}` : letter === "k" && event.shiftKey ? "shift+k" : letter;
      if (!Object.hasOwn(ACTS, name)) return;
      event.preventDefault();
      say("");
      const isUnseen = !grid.selected.length && !document.activeElement.matches(".card");
      if (onTop() === grid && "kxun".includes(letter) && isUnseen) grid.focus();
      else ACTS[name]();
    });
    for (const button of document.querySelectorAll("[data-key]")) {
      button.addEventListener("click", () => {
        say("");
        ACTS[button.dataset.key]();
        if (viewer.isOpen) at("viewer").focus(); // so that Space does not press the button again
      });
    }
    at("note").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      at("note-save").click();
    });
    at("note-save").addEventListener("click", () => {
      noting.save();
      noting.close();
    });
    for (const button of document.querySelectorAll("dialog .close")) {
      button.addEventListener("click", () => button.closest("dialog").close());
    }
  }

  return { start };
})();
