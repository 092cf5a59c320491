"use strict";
// The page: its header, and looking again while a run is under way.

(() => {
  const SLOWLY = 30; // seconds between two looks, when nothing has been written for some time
  const SILENT = 120; // seconds after which the run seems to have stopped
  const OPEN = "callsheet-shares"; // whether this browser shows the tables by model
  const COLOUR_OF = { complete: "stored", partial: "in_doubt", stopped: "failed" };
  const { element, ofUser } = cards;
  const heard = { trouble: "", news: "" };

  function number(value) {
    return value.toLocaleString();
  }

  function header() {
    const { outcome, stop, states } = callsheet.about;
    at("outcome").hidden = false;
    at("outcome").dataset.state = COLOUR_OF[outcome] ?? "pending";
    at("outcome").textContent = outcome ?? "running";
    figures();
    progress(states);
    notes(outcome, stop);
    plots();
  }

  // The most important first: those for which a line has no place are not seen.
  function figures() {
    const { states, spent, net, credits, inDoubt, limit, quoted, written } = callsheet.about;
    const { kept, rejected, to_review: left } = marks.reviewed();
    const isStored = kept + rejected + left > 0; // also before the first mark, which moves nothing then
    const list = [
      ["Stored", `${number(states.stored ?? 0)} of ${number(callsheet.about.jobs)}`],
      ["Spent", limit === null ? `${spent} USD` : `${spent} of ${limit} USD`],
      ["In doubt", inDoubt && `at most ${inDoubt} USD more`],
      ["Reviewed", isStored && `${number(kept)} kept · ${number(rejected)} rejected · ${number(left)} to review`],
      ["To buy again", marks.toBuyAgain],
      ["Cost per kept", isStored && (kept ? `${marks.costPerKept(net, kept)} USD` : "none kept yet")],
      ["Came back", credits && `${credits} USD`],
      ["Quoted", quoted && `${quoted} USD`],
      ["Written", moment(written)],
    ].filter(([, value]) => value);
    at("figures").title = list.map((figure) => figure.join(": ")).join("\n");
    at("figures").replaceChildren(...list.map(([name, value]) => {
      const figure = element("div", "figure");
      figure.append(element("dt", "", name), element("dd", "", value));
      return figure;
    }));
    at("save").hidden = at("saved").hidden = Boolean(callsheet.about.marks);
    at("save").disabled = !marks.mine;
    at("save").textContent = `Save marks.csv (${number(marks.mine)})`;
    shares();
  }

  // As which other models the files of a model were ordered.
  function ordered(orderedAs) {
    const others = Object.entries(orderedAs).map(([model, jobs]) => `${number(jobs)} ordered as ${model}`);
    return others.length ? ` (${others.join(", ")})` : "";
  }

  // How the batch stands by model, and by each setting of which rows have several values: a small table for each.
  function shares() {
    const tables = marks.shares().filter(([, lines]) => lines.some(({ files }) => files));
    at("shares").hidden = !tables.length;
    at("shares").firstElementChild.textContent = `By ${tables.map(([name]) => cards.word(name)).join(", ")}`;
    at("shares").lastElementChild.replaceChildren(...tables.map(([name, lines]) => cards.table(
      [cards.word(name), "files", "kept", "rejected", "to review", "USD spent", "USD a kept file"],
      lines.map(({ value, orderedAs, files, kept, rejected, to_review: left, spent, each }) =>
        [cards.setting(name, value) + ordered(orderedAs), files, kept, rejected, left, spent, each ?? ""]),
    )));
  }

  function plots() {
    const all = callsheet.about.plots;
    at("plots").hidden = !all.length;
    at("plots").lastElementChild.replaceChildren(...all.map(({ src, text }) => {
      return Object.assign(element("img"), { loading: "lazy", width: 1152, height: 576, src, alt: text });
    }));
  }

  function moment(text) {
    const time = new Date(text);
    const today = time.toDateString() === new Date().toDateString();
    return time.toLocaleString(undefined, today ? { timeStyle: "medium" } : { dateStyle: "medium", timeStyle: "short" });
  }

  function progress(states) {
    const all = callsheet.about.jobs || 1;
    const known = filters.STATES.filter((state) => states[state]).map((state) => [state, states[state]]);
    at("progress").replaceChildren(...known.map(([state, count]) => {
      const bar = element("span");
      bar.dataset.state = state;
      bar.style.flexGrow = String(count / all);
      return bar;
    }));
    const words = known.map(([state, count]) => `${number(count)} ${cards.word(state)}`);
    at("progress").setAttribute("aria-label", `Jobs by state: ${words.join(", ")}`);
    at("progress").title = words.join(", ");
  }

  function notes(outcome, stop) {
    const { rejected, rejects, shown, jobs: all } = callsheet.about;
    const list = [];
    if (stop) {
      list.push(ofUser("span", "stop", outcome === "stopped" ? `Stopped: ${stop}` : stop));
      list[0].dataset.state = "failed";
    }
    if (rejected) {
      const link = element("a", "", `${number(rejected)} rejected ${rejected === 1 ? "row" : "rows"}`);
      list.push(Object.assign(link, { href: rejects, title: "Rows of the batch file that cannot be bought, and why: rejects.csv" }));
    }
    if (shown < all) {
      const more = callsheet.about.marks ? "" : " (report.contact_sheet); callsheet review shows 100,000";
      list.push(element("span", "", `The first ${number(shown)} of ${number(all)} jobs are here${more}; `
        + "manifest.parquet and costs.parquet have all"));
    }
    at("notes").replaceChildren(...list);
    at("notes").hidden = !list.length;
  }

  // The frames have the proportions of most of the first files, within limits.
  function proportions(jobs) {
    const ratios = jobs.map(({ files: [file] }) => file?.width / file?.height).filter((ratio) => ratio > 0).sort((a, b) => a - b);
    if (!ratios.length) return;
    const median = ratios[ratios.length >> 1];
    at("cards").style.setProperty("--ratio", String(Math.min(1.5, Math.max(0.8, median)).toFixed(3)));
  }

  async function redraw(fromTop = false) {
    if (filters.needsTexts) await callsheet.loadTexts();
    if (filters.needsTexts) return; // they cannot be loaded
    const places = filters.apply();
    const { shown: all } = callsheet.about;
    grid.show(places, fromTop);
    at("clear").hidden = !filters.active;
    at("count").textContent = places.length === all
      ? `${number(all)} ${all === 1 ? "job" : "jobs"}` : `${number(places.length)} of ${number(all)} jobs`;
    at("empty").hidden = places.length > 0;
    at("empty").textContent = all ? "No job matches these filters." : "This batch has no jobs.";
  }

  function changed() {
    redraw(true);
    remember();
  }

  function marked() {
    figures();
    redraw();
    viewer.refresh();
    compare.refresh();
  }

  // It is blind from now on, or not any more: another order begins at its top.
  function reordered() {
    marked();
    redraw(true);
    if (document.activeElement.matches(".card")) grid.focus();
  }

  // The address of this page says which jobs are shown, and which one is open.
  function remember() {
    const address = new URLSearchParams();
    filters.write(address);
    if (viewer.isOpen) address.set("job", viewer.target.job.job_key.slice(0, 16));
    const [page] = location.href.split("#");
    history.replaceState(null, "", address.size ? `${page}#${address}` : page);
  }

  function follow() {
    if (location.hash === "#cards") return; // the link that skips to the jobs
    const address = new URLSearchParams(location.hash.slice(1));
    filters.read(address);
    redraw(true);
    const place = address.has("job") ? callsheet.placeOf(address.get("job")) : undefined;
    if (place === undefined) viewer.close();
    else open(place);
  }

  function open(place) {
    callsheet.when([place], () => viewer.open(callsheet.job(place)));
  }

  // What is wrong stays until it is well again; what else there is to say, until the next key.
  function tell(text, which = "trouble") {
    heard[which] = text;
    const now = heard.trouble || heard.news;
    if (at("told").textContent !== now) at("told").textContent = now;
    at("told").hidden = !now;
  }

  function later() {
    const { outcome, interval, written } = callsheet.about;
    const silent = (Date.now() - Date.parse(written)) / 1000;
    const isSilent = !outcome && silent > SILENT;
    const news = outcome ? "" : isSilent
      ? `No word since ${moment(written)}: the run may have ended. callsheet report CONFIG writes this page anew.`
      : "updates by itself";
    at("news").classList.toggle("silent", isSilent);
    if (isSilent) {
      at("outcome").dataset.state = COLOUR_OF.partial;
      at("outcome").textContent = "silent";
    }
    if (at("news").textContent !== news) at("news").textContent = news;
    if (!outcome || callsheet.about.marks) setTimeout(again, 1000 * (isSilent ? SLOWLY : interval));
  }

  async function again() {
    if (!document.hidden && await callsheet.look()) {
      marks.compareWithAll();
      if (!callsheet.about.marks) await marks.poll();
      header();
      marked();
    }
    later();
  }

  // The overview is here: what is chosen meanwhile stays.
  function offer() {
    const now = new URLSearchParams();
    filters.write(now);
    filters.offer(changed);
    filters.read(now);
    marks.compareWithAll();
    marked();
  }

  // Some jobs have come: of what is seen, the cards are drawn.
  function arrived(jobs) {
    marks.know(jobs);
    if (!at("cards").style.getPropertyValue("--ratio")) {
      proportions(jobs);
      grid.measure();
    }
    grid.draw();
    viewer.refresh();
    compare.refresh();
  }

  // The pictures on the screen, each there or missing.
  function pictures() {
    const seen = [...document.querySelectorAll(".frame img")].filter((image) => image.getBoundingClientRect().top < innerHeight);
    return Promise.all(seen.filter((image) => !image.complete).map((image) => new Promise((done) => {
      image.addEventListener("load", done);
      image.addEventListener("error", done);
    })));
  }

  async function start() {
    if (!callsheet.about) {
      at("empty").hidden = false;
      at("empty").textContent = "The jobs could not be loaded: data/summary.js is missing, or its signed address has expired.";
      document.documentElement.classList.remove("scripted");
      return;
    }
    callsheet.onArrival(arrived);
    filters.start(changed);
    grid.start(open);
    viewer.onMove(remember);
    keys.start((text) => tell(text, "news"));
    marks.start(() => {
      marked();
      blind.marked();
    }, tell);
    blind.start(reordered);
    header();
    const asked = new URLSearchParams(location.hash === "#cards" ? "" : location.hash.slice(1));
    filters.read(asked);
    const isPlain = !asked.size && !blind.isOn; // otherwise the overview says what is seen first
    if (callsheet.about.shown && isPlain) {
      await callsheet.when([0], () => redraw());
      if (callsheet.about.marks) grid.focus();
      await pictures();
    }
    await callsheet.loadOverview();
    offer();
    const place = asked.has("job") ? callsheet.placeOf(asked.get("job")) : undefined;
    if (place !== undefined) open(place);
    else if (!isPlain && callsheet.about.marks) grid.focus();
    addEventListener("hashchange", follow);
    at("save").addEventListener("click", marks.save);
    at("shares").open = Boolean(callsheet.recalled(OPEN));
    at("shares").addEventListener("toggle", () => callsheet.remember(OPEN, at("shares").open ? "open" : ""));
    await marks.poll();
    if (callsheet.about.marks) marks.again();
    document.documentElement.dataset.ready = "";
    later();
  }

  // The last script of the page is the summary: by now it has run, or failed.
  if (document.readyState === "complete") start();
  else addEventListener("load", start);
})();
