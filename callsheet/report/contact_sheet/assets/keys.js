"use strict";
// What keys and buttons do: they mark what is chosen in the grid, in the viewer or in the comparison, whichever is on
// top. After a mark the next file without one is chosen.

const keys = (() => {
  const at = (id) => document.getElementById(id);
  const noting = at("noting");
  const help = at("help");
  const onTop = () => [viewer, compare].find((each) => each.isOpen) ?? grid;
  let say = () => {};

  function decide(decision) {
    const where = onTop();
    const { job, files } = where.target ?? {};
    if (!job) return;
    if (!files.length) {
      say(`Nothing is stored of ${job.row_id}, so there is nothing to mark.`);
      return;
    }
    const go = decision ? where.next(job) : () => where === grid && grid.focusOn(job);
    marks.set(job, files, decision ? { decision } : { decision: null, note: null });
    go();
    if (decision && !marks.reviewed().to_review) say("Every stored file is marked.");
  }

  function note() {
    const { job, files } = onTop().target ?? {};
    if (!files?.length) return;
    const before = document.activeElement;
    const text = at("note");
    text.value = files.find((file) => file.note)?.note ?? "";
    noting.save = () => marks.set(job, files, { note: text.value.trim() || null });
    // The browser gives the focus back at once; this event may come after the next keys.
    noting.addEventListener("close", () => before?.isConnected || grid.focusOn(job), { once: true });
    noting.showModal();
    text.select();
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

  function original() {
    const { job } = onTop().target ?? {};
    if (job?.made_from?.href) window.open(job.made_from.href, "_blank", "noopener");
    else if (job) say(job.made_from ? `Made from ${viewer.origin(job)}.` : "This is not made from a file of another batch.");
  }

  const ACTS = {
    k: () => decide("kept"),
    x: () => decide("rejected"),
    u: () => decide(null),
    n: note,
    c: comparison,
    b: () => say(compare.blind() ? "Blind: model and cost are hidden until a decision is made." : ""),
    m: original,
    z: undo,
    "?": () => help.showModal(),
  };

  function start(tell) {
    say = tell;
    document.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || event.repeat) return;
      if (event.target.closest?.("input, select, textarea") || noting.open || help.open) return;
      const letter = /^[a-z?]$/i.test(event.key) ? event.key.toLowerCase() : event.code.replace("Key", "").toLowerCase();
      if (!Object.hasOwn(ACTS, letter)) return;
      event.preventDefault();
      say("");
      if (onTop() === grid && "kxun".includes(letter) && !document.activeElement.matches(".card")) grid.focus();
      else ACTS[letter]();
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
    at("note-cancel").addEventListener("click", () => noting.close());
    at("help-close").addEventListener("click", () => help.close());
  }

  return { start };
})();
