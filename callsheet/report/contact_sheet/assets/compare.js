"use strict";
// The files of a row side by side, one of them chosen: what keys and buttons mark.

const compare = (() => {
  const dialog = at("compare");
  const place = at("tiles");
  const { element, ofUser } = cards;
  let tiles = []; // {job, file}
  let chosen = 0;
  let from; // what had the focus before

  function filesOf(job) {
    const jobs = callsheet.row(job).map(callsheet.job).filter(Boolean);
    // A job's key is a hash of its row's id and of what it asks for: in this order, each row has its own.
    if (blind.isOn) jobs.sort((a, b) => (a.job_key < b.job_key ? -1 : 1));
    return callsheet.filesOf(jobs);
  }

  // What tells a file from the others of its row: the model, the settings in which they differ, and the cost.
  function tells({ job }) {
    if (blind.isOn) return [];
    const names = Object.keys(job.settings).filter((name) => tiles.some((each) => each.job.settings[name] !== job.settings[name]));
    const settings = names.map((name) => cards.setting(name, job.settings[name]));
    return [cards.model(job), ...settings, job.cost && `${job.cost} USD`].filter(Boolean);
  }

  // As many columns as make the tiles largest.
  function columns() {
    const { clientWidth: width, clientHeight: height } = place;
    const ratio = Math.max(...tiles.map(({ file }) => file.width / file.height || 1));
    let best = [0, 1];
    for (let count = 1; count <= tiles.length; count++) {
      const high = height / Math.ceil(tiles.length / count) - 44;
      const size = Math.min(width / count, high * ratio);
      if (size > best[0]) best = [size, count];
    }
    return best[1];
  }

  // What a tile says of its file, as it is decided now.
  function dress(made, { job, file }, number) {
    const place = `${number + 1} of ${tiles.length}`;
    const told = tells({ job });
    made.dataset.decision = file.decision ?? "";
    made.setAttribute("aria-label", [place, file.decision, ...told].filter(Boolean).join(", "));
    made.querySelector(".badges").replaceWith(cards.badges([file]));
    made.lastElementChild.replaceChildren(
      element("strong", "", place), ofUser("span", "what", [...told, file.note].filter(Boolean).join(" · ")),
    );
  }

  function tile({ job, file }, number) {
    const made = element("figure", "tile");
    made.tabIndex = number === chosen ? 0 : -1;
    const stage = element("div", "stage");
    stage.append(Object.assign(viewer.media(job, file), { muted: true, controls: false }), element("div", "badges"));
    made.append(stage, element("figcaption"));
    dress(made, { job, file }, number);
    made.addEventListener("focus", () => point(number));
    made.addEventListener("dblclick", () => viewer.open(job, file));
    return made;
  }

  function point(number) {
    chosen = number;
    for (const [index, each] of [...place.children].entries()) each.tabIndex = index === chosen ? 0 : -1;
  }

  function focus(number) {
    point(Math.min(Math.max(number, 0), tiles.length - 1));
    place.children[chosen]?.focus();
  }

  function draw() {
    const { job } = tiles[0];
    at("compare-title").textContent = job.row_id;
    at("compare-prompt").textContent = job.prompt;
    place.replaceChildren(...tiles.map(tile));
    place.style.setProperty("--columns", columns());
  }

  function show(job, file) {
    tiles = filesOf(job);
    chosen = Math.max(0, tiles.findIndex((each) => (file ? each.file === file : !each.file.decision)));
    draw();
    focus(chosen);
  }

  function open(job, file) {
    callsheet.when(callsheet.row(job), () => {
      if (!filesOf(job).length) return;
      if (!dialog.open) {
        from = document.activeElement;
        dialog.showModal();
      }
      show(job, file);
    });
  }

  // Marks have changed, or the jobs: the tiles stay, and show what is decided now.
  function refresh() {
    if (!dialog.open) return;
    const now = filesOf(tiles[chosen].job);
    if (!now.length) return; // its part is on its way
    const same = now.length === tiles.length && now.every(({ file }, index) => file.url === tiles[index].file.url);
    if (!same) { // others, or in another order
      show(tiles[chosen].job, now.find(({ file }) => file.url === tiles[chosen].file.url)?.file);
      return;
    }
    tiles = now;
    for (const [index, each] of tiles.entries()) dress(place.children[index], each, index);
  }

  // The next file without a decision: of this row, else of the next row that has one. As a function that goes there.
  function next(job, isWanted) {
    const order = [...tiles.keys()].map((step) => (chosen + 1 + step) % tiles.length);
    const here = isWanted ? undefined : order.find((index) => index !== chosen && !tiles[index].file.decision);
    if (here !== undefined) return () => focus(here);
    const place = grid.nextUnmarked(job, grid.isOfOtherRow(job));
    return () => (place === undefined ? focus(chosen) : callsheet.when([place], () => open(callsheet.job(place))));
  }

  dialog.addEventListener("keydown", (event) => {
    const across = getComputedStyle(place).gridTemplateColumns.split(" ").length;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -Infinity, End: Infinity };
    if (event.target.closest("video") || viewer.isOpen) return;
    if (event.key in steps) {
      event.preventDefault();
      focus(chosen + steps[event.key]);
    } else if ((event.key === " " || event.key === "Enter") && !event.target.closest("button")) {
      event.preventDefault();
      viewer.open(tiles[chosen].job, tiles[chosen].file);
    }
  });
  dialog.addEventListener("close", () => {
    place.replaceChildren();
    // The browser has given the focus back; keys that came before this event may have moved it on.
    const moved = ![from, document.body].includes(document.activeElement);
    if (tiles.length && !viewer.isOpen && !moved) grid.focusOn(tiles[chosen].job);
  });
  addEventListener("resize", () => dialog.open && place.style.setProperty("--columns", columns()));

  return {
    open, refresh, next,
    close: () => dialog.close(),
    get isOpen() {
      return dialog.open;
    },
    get target() {
      const { job, file } = tiles[chosen];
      return { job, files: [file] };
    },
  };
})();
