"use strict";
// What a client says of each file. It stays in this browser, and leaves as marks.csv.

const at = (id) => document.getElementById(id);
const { key, files } = JSON.parse(at("files").textContent);
const store = `callsheet client ${key}`;
const name = (file) => `${file.job_key}/${file.index}`;
let marks = {}; // by the name of a file: {decision, note}, each only where the client has said it
let current = 0; // the place of the card that a key is for
let isKept = true; // whether this browser keeps the marks
let isSaved = true; // whether marks.csv has them all

const markOf = (file) => marks[name(file)] ?? {};
const noteOf = (file) => markOf(file).note ?? file.note ?? "";
const marked = () => files.filter((file) => markOf(file).decision || noteOf(file) !== (file.note ?? ""));

const cards = files.map((file, place) => {
  const card = at("card").content.cloneNode(true).querySelector("article");
  const title = file.several ? `${file.row_id} ${file.file_number}` : file.row_id;
  const link = card.querySelector("a");
  const address = encodeURIComponent(file.file);
  card.querySelector("h2").textContent = title;
  card.setAttribute("aria-label", title);
  card.querySelector("[role=group]").setAttribute("aria-label", title);
  card.querySelector("textarea").setAttribute("aria-label", `Note on ${title}`);
  link.href = address;
  if (file.type === "video") {
    const video = document.createElement("video");
    Object.assign(video, { controls: true, playsInline: true, loop: true, preload: "metadata", src: address });
    video.setAttribute("aria-label", title);
    card.prepend(video);
    link.textContent = "Full size";
  } else {
    link.append(Object.assign(document.createElement("img"), { loading: "lazy", src: address, alt: `${title}, full size` }));
  }
  card.addEventListener("focusin", () => { current = place; });
  card.addEventListener("click", ({ target }) => {
    current = place;
    const decision = target.closest("button")?.dataset.decision;
    if (decision) mark(place, { decision: markOf(file).decision === decision ? undefined : decision });
  });
  card.querySelector("textarea").addEventListener("input", ({ target }) => mark(place, { note: target.value }));
  return card;
});

function draw(place) {
  const card = cards[place];
  const { decision } = markOf(files[place]);
  card.dataset.decision = decision ?? "";
  for (const button of card.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", button.dataset.decision === decision);
  }
  const box = card.querySelector("textarea");
  if (box.value !== noteOf(files[place])) box.value = noteOf(files[place]); // where it is the same, the caret stays
}

function count() {
  const number = marked().length;
  at("save").disabled = !number;
  at("status").textContent = isKept
    ? `${number} of ${files.length} marked`
    : `${number} of ${files.length} marked. This browser keeps no marks: save marks.csv before you leave this page.`;
}

function mark(place, change) {
  marks[name(files[place])] = { ...markOf(files[place]), ...change };
  isSaved = false;
  keep();
  draw(place);
  count();
}

function keep() {
  try {
    localStorage.setItem(store, JSON.stringify({ by: at("by").value, marks }));
  } catch {
    isKept = false;
  }
}

function recall() {
  try {
    const kept = JSON.parse(localStorage.getItem(store) ?? "{}");
    marks = kept.marks ?? {};
    at("by").value = kept.by ?? "";
  } catch {
    isKept = false;
  }
  files.forEach((_, place) => draw(place));
  count();
}

function go(place) {
  const card = cards[Math.max(0, Math.min(cards.length - 1, place))];
  card.focus();
  card.scrollIntoView({ block: "nearest" });
}

function csv() {
  const by = at("by").value.trim();
  const rows = marked().map((file) => {
    const decision = markOf(file).decision ?? file.decision ?? ""; // a note alone takes no decision back
    return [file.row_id, file.sample, file.file_number, file.index, decision, noteOf(file), by];
  });
  const cell = (value) => (/[",\r\n]|^\s|\s$/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  return [["row_id", "sample", "file_number", "index", "decision", "note", "by"], ...rows]
    .map((row) => `${row.map((value) => cell(String(value))).join(",")}\r\n`).join("");
}

at("saving").addEventListener("submit", (event) => {
  event.preventDefault();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  link.download = "marks.csv";
  link.click();
  isSaved = true;
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});

document.addEventListener("keydown", (event) => {
  const { target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat && !event.key.startsWith("Arrow")) return;
  if (target.matches("input, textarea")) {
    if (event.key === "Escape") go(current);
    return;
  }
  const columns = cards.filter((card) => card.offsetTop === cards[0].offsetTop).length;
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  const decision = { k: "kept", x: "rejected" }[event.key.toLowerCase()];
  if (event.key in steps) {
    if (target.matches("video")) return; // there they move in time, and change the volume
    go(target.closest("article") ? current + steps[event.key] : current);
  } else if (decision) {
    mark(current, { decision });
    go(current + 1);
  } else if (event.key.toLowerCase() === "u") {
    mark(current, { decision: undefined, note: undefined });
  } else if (event.key.toLowerCase() === "n") {
    cards[current].querySelector("textarea").focus();
  } else return;
  event.preventDefault();
});

at("by").addEventListener("input", keep);
addEventListener("storage", (event) => event.key === store && recall()); // another tab of this page has marked
addEventListener("beforeunload", (event) => { if (!isKept && !isSaved) event.preventDefault(); });
at("cards").append(...cards);
recall();
