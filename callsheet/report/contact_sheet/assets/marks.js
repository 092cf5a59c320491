"use strict";
// What is decided about each file. Marks of this page wait until the ledger has them: a page that is served sends them
// at once; one from a disk or a bucket keeps them in this browser, and saves them as marks.csv. Both read what others
// have said since.

const marks = (() => {
  const POLL = 2; // seconds
  const AT_ONCE = 1000; // marks of a request
  const NAMED = 3; // jobs of a message
  const REFUSED = "This page may not mark any more: open the link that callsheet review has printed.";
  const UNKEPT = "This browser keeps no marks: save marks.csv before you leave this page.";
  const GONE = "The server is gone: start callsheet review again, and open its new link.";
  const WHO = "callsheet-name"; // of the person who marks in this browser
  const said = new Map(); // file -> {decision, note, decided_by}, where the ledger's is newer than the job's script
  const waiting = new Map(); // file -> the same, of this page: the ledger does not have it yet
  const filesByCode = []; // as the overview has the files of jobs
  const kindsByCode = [];
  const done = []; // of this page, for `undo`: each a list of what files had before
  const since = new Map(); // place of a job -> file of it -> what is decided since the overview was written
  let number; // of the newest mark that is known
  let sending = false;
  let requests = 0; // that have sent marks
  let rejectedRows = ""; // what is to be bought again, by the server
  let unkept = false; // there are marks that this browser could not keep, and nobody has saved
  let lost = []; // whose marks were not taken, until the server answers again
  let changed = () => {};
  let told = () => {};

  const KINDS = [
    (file) => !file.decision, // "unmarked"
    (file) => file.decision === "kept",
    (file) => file.decision === "rejected",
    (file) => file.flagged,
  ];

  const name = ({ job, file }) => `${job.job_key}/${file.attempt}/${file.index}`;
  const served = () => callsheet.about.marks;
  const store = () => `callsheet marks ${callsheet.about.key}`;

  // A file of a job that is here, and the job.
  function fileOf(key) {
    const job = callsheet.job(callsheet.placeOf(key));
    return [job, job?.files.find((file) => name({ job, file }) === key)];
  }

  const now = (key) => waiting.get(key) ?? said.get(key);

  // The place of its job, where the overview has the file.
  function placeOf(key) {
    const place = callsheet.all ? callsheet.placeOf(key) : undefined;
    const is = ({ file }) => key.endsWith(`/${file}`);
    return place !== undefined && writtenOf(place).some(is) ? place : undefined;
  }

  // What is said of a file has changed.
  function show(key) {
    const [, file] = fileOf(key);
    if (file) Object.assign(file, now(key) ?? file.written);
    const place = placeOf(key);
    if (place === undefined) return;
    if (!since.has(place)) since.set(place, new Map());
    since.get(place).set(key.slice(key.indexOf("/") + 1), now(key));
  }

  // Jobs are here, or here anew.
  function know(jobs) {
    for (const { job, file } of callsheet.filesOf(jobs)) {
      file.written ??= { decision: file.decision, note: file.note, decided_by: file.decided_by };
      Object.assign(file, now(name({ job, file })) ?? file.written);
    }
  }

  // The overview is here, or here anew.
  function compareWithAll() {
    since.clear();
    filesByCode.length = kindsByCode.length = 0;
    const keys = new Set([...said.keys(), ...waiting.keys()]);
    if (!served()) { // what was said until now is in the new scripts
      said.clear();
      number = callsheet.about.newestMark;
    }
    for (const key of keys) show(key);
  }

  // The files of a job as the overview has them.
  function writtenOf(place) {
    const { values, codes } = callsheet.all.files;
    const code = codes[place];
    filesByCode[code] ??= (values[code - 1]?.split(" ") ?? []).map((text) => {
      const [attempt, index, decision, flagged] = text.split("/");
      return { file: `${attempt}/${index}`, decision: decision || null, flagged: Boolean(flagged) };
    });
    return filesByCode[code];
  }

  // The files of a job, as they are decided now.
  function filesOf(place) {
    return writtenOf(place).map((each) => {
      const mark = since.get(place)?.get(each.file);
      return mark ? { ...each, decision: mark.decision } : each;
    });
  }

  const kindsOf = (files) => KINDS.reduce((bits, is, at) => bits | (files.some(is) << at), 0);

  // Which of `KINDS` a job has files of, as bits.
  function kinds(place) {
    if (since.has(place)) return kindsOf(filesOf(place));
    const code = callsheet.all.files.codes[place];
    return (kindsByCode[code] ??= kindsOf(writtenOf(place)));
  }

  // What `list` says, each {key, decision, note}, is on the screen at once.
  function take(list) {
    for (const { key, decision, note } of list) {
      waiting.set(key, { decision, note, decided_by: null });
      const before = said.get(key) ?? fileOf(key)[1]?.written;
      if (!served() && decision === before?.decision && note === before?.note) waiting.delete(key); // taken back
      show(key);
    }
    if (served()) send();
    else keep();
    changed();
  }

  // Sends what waits, one request after the other; what is refused goes back to what it was.
  async function send() {
    if (sending) return;
    sending = true;
    while (waiting.size) {
      const sent = new Map([...waiting].slice(0, AT_ONCE));
      const list = [...sent].map(([key, { decision, note }]) => {
        const [job, attempt, index] = key.split("/");
        return { job_key: job, attempt: Number(attempt), index: Number(index), decision, note };
      });
      requests += 1;
      const wrong = await ask(served(), {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ marks: list, by: who() }),
      }).then(() => "", (error) => error.message);
      for (const [key, mark] of sent) {
        if (!wrong) said.set(key, mark);
        if (waiting.get(key) !== mark) continue; // it was marked again meanwhile
        waiting.delete(key);
        show(key);
        const [job] = fileOf(key);
        if (wrong) lost.push(job?.highest > 1 ? `${job.row_id} (${job.number} of ${job.highest})` : callsheet.rowAt(placeOf(key)));
      }
      if (wrong) {
        told(notMarked() + wrong, wrong === GONE ? "trouble" : "news"); // news stay until the next key
        changed();
      }
    }
    sending = false;
    await poll();
  }

  function notMarked() {
    const others = lost.length > NAMED ? ` and ${lost.length - NAMED} more` : "";
    return lost.length ? `Not marked: ${lost.slice(0, NAMED).join(", ")}${others}. ` : "";
  }

  async function ask(address, options) {
    let answer;
    try {
      answer = await fetch(address, { redirect: "error", ...options });
    } catch {
      throw new Error(GONE);
    }
    if (!answer.ok) throw new Error(answer.status === 403 ? REFUSED : await answer.text());
    return answer;
  }

  // Reads the marks that are newer than what this page knows.
  async function poll() {
    const before = requests;
    try {
      const news = served() ? await (await ask(`${served()}?since=${number}`)).json() : await callsheet.loadNews();
      if (requests !== before) return; // it may be older than what was sent meanwhile
      const list = news.marks.filter((mark) => mark.number > number);
      for (const { job_key, attempt, index, decision, note, decided_by } of list) {
        const key = `${job_key}/${attempt}/${index}`;
        said.set(key, { decision, note, decided_by });
        show(key);
      }
      number = Math.max(number, news.number);
      const isNew = list.length > 0 || news.again !== rejectedRows;
      rejectedRows = news.again;
      lost = [];
      if (served()) told("");
      if (isNew) changed();
    } catch (error) {
      told(notMarked() + error.message);
    }
  }

  function again() {
    setTimeout(async () => {
      if (!document.hidden && !sending) await poll();
      again();
    }, 1000 * POLL);
  }

  function keep() {
    try {
      localStorage.setItem(store(), JSON.stringify([...waiting]));
    } catch {
      unkept = true;
      told(UNKEPT);
    }
  }

  function recall() {
    try {
      for (const [key, mark] of JSON.parse(localStorage.getItem(store()) ?? "[]")) waiting.set(key, mark);
    } catch {
      told(UNKEPT);
    }
  }

  // Marks files: `changes` are of {job, file, change}, where a change has a decision, a note, or both. One undo takes
  // all of them back.
  function set(changes) {
    const pairs = changes.map(({ job, file, change }) => {
      const before = { key: name({ job, file }), decision: file.decision, note: file.note };
      return [before, { ...before, ...change }];
    }).filter(([before, after]) => before.decision !== after.decision || before.note !== after.note);
    if (!pairs.length) return;
    done.push(pairs.map(([before]) => before));
    take(pairs.map(([, after]) => after));
  }

  // Takes the last mark of this page back, and calls with the job and the file. Returns whether there is one.
  function undo(call) {
    const list = done.pop();
    const place = list && placeOf(list[0].key);
    if (place === undefined) return false;
    callsheet.when([place], () => {
      take(list);
      call(...fileOf(list[0].key));
    });
    return true;
  }

  // Counts of files by their decision as they are now, of which files have another one.
  function adjusted(counts, changes) {
    const sum = { ...counts };
    for (const { before, after } of changes) {
      sum[before ?? "to_review"] -= 1;
      sum[after ?? "to_review"] += 1;
    }
    return sum;
  }

  // What is decided otherwise than it was written.
  function changes() {
    return [...since.keys()].flatMap((place) => {
      const before = writtenOf(place);
      return filesOf(place).map(({ decision }, at) => ({ place, before: before[at].decision, after: decision }));
    }).filter(({ before, after }) => before !== after);
  }

  // How far the batch is reviewed.
  function reviewed() {
    return adjusted((callsheet.all ?? callsheet.about).counts, changes());
  }

  // The same by model, and by each setting that is compared.
  function shares() {
    const list = changes();
    return Object.entries((callsheet.all ?? callsheet.about).shares).map(([name, lines]) => [name, lines.map((line) => {
      const { values, codes } = callsheet.all?.settings[name] ?? {};
      const sum = adjusted(line, list.filter(({ place }) => values[codes[place] - 1] === line.value));
      return { ...sum, files: sum.kept + sum.rejected + sum.to_review, each: costPerKept(line.spent, sum.kept) };
    })]);
  }

  // How many rows have a file that is decided.
  function decidedRows() {
    const { rows } = callsheet.all;
    return new Set(rows.filter((_, place) => kinds(place) & 0b110)).size; // kept or rejected
  }

  // What a kept file costs, exact: half to even at six decimals, as everywhere in Callsheet.
  function costPerKept(amount, count) {
    const kept = BigInt(count);
    if (!kept) return null;
    const [whole, part = ""] = amount.split(".");
    const spent = BigInt(whole + part.padEnd(6, "0"));
    let each = spent / kept;
    const left = 2n * (spent % kept);
    if (left > kept || (left === kept && each % 2n)) each += 1n;
    const digits = String(each).padStart(7, "0");
    return `${digits.slice(0, -6)}.${digits.slice(-6).replace(/00$/, "")}`;
  }

  function csv() {
    const cell = (value) => (/[",\r\n]|^\s|\s$/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    const { rows: ids, samples, numbers } = callsheet.all;
    const jobs = new Set(ids.map((id, place) => JSON.stringify([id, samples[place]])));
    const several = jobs.size < ids.length; // a row's id and sample do not say which file is meant
    const rows = [...waiting].filter(([key]) => placeOf(key) !== undefined).map(([key, { decision, note }]) => {
      const [, , index] = key.split("/");
      const place = placeOf(key);
      return [ids[place], samples[place], index, decision ?? "", note ?? "", ...(several ? [numbers[place]] : [])];
    });
    const header = ["row_id", "sample", "index", "decision", "note", ...(several ? ["file_number"] : [])];
    return [header, ...rows].map((row) => `${row.map((value) => cell(String(value))).join(",")}\r\n`).join("");
  }

  function save() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    link.download = "marks.csv";
    link.click();
    unkept = false;
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // Who marks, as that person has typed it once; null where nobody has.
  function who() {
    return at("who").value.trim() || null;
  }

  function askForName() {
    const box = at("who");
    box.value = callsheet.recalled(WHO);
    box.hidden = false;
    box.addEventListener("change", () => callsheet.remember(WHO, box.value.trim()));
  }

  // `tell` is called with what is wrong, or with nothing when all is well.
  function start(redraw, tell) {
    [changed, told] = [redraw, tell];
    addEventListener("beforeunload", (event) => {
      if ((served() && waiting.size) || unkept) event.preventDefault(); // the browser asks whether to leave the page
    });
    number = callsheet.about.newestMark;
    document.addEventListener("visibilitychange", () => document.hidden || poll());
    if (served()) {
      askForName();
      return;
    }
    recall();
    addEventListener("storage", ({ key }) => {
      if (key !== store()) return;
      const before = [...waiting.keys()];
      waiting.clear();
      recall(); // another tab of this page has marked
      for (const each of [...before, ...waiting.keys()]) show(each);
      changed();
    });
  }

  // `kept` or `rejected` where that is decided about every file of the job, `part` where about some.
  function of(job) {
    const [first, ...others] = new Set(job.files.map((file) => file.decision));
    return others.length ? "part" : first ?? "";
  }

  return {
    start, name, know, compareWithAll, kinds, poll, again, set, undo, of, reviewed, shares, decidedRows, costPerKept, save,
    isUnmarked(place) {
      return callsheet.all ? Boolean(kinds(place) & 1) : kindsOf(callsheet.job(place)?.files ?? []) & 1;
    },
    get toBuyAgain() {
      return rejectedRows;
    },
    get mine() {
      return served() ? 0 : waiting.size;
    },
  };
})();
