"use strict";
// What is decided about each file. A page that is served sends each mark at once, and reads those of others; a
// page from a disk or a bucket keeps them in this browser, and saves them as marks.csv.

const marks = (() => {
  const POLL = 2; // seconds
  const REFUSED = "This page may not mark any more: open the link that callsheet review has printed.";
  const GONE = "The server is gone: start callsheet review again, and open its new link.";
  const WHO = "callsheet-name"; // of the person who marks in this browser
  const said = new Map(); // file -> {decision, note, decided_by}, where it is newer than the script with the job
  const waiting = new Map(); // file -> the same: not taken by the server yet
  const done = []; // of this page, for `undo`: each a list of what files had before
  let files = new Map(); // file -> [job, file]
  let number = 0; // of the newest mark that the server has told
  let sending = false;
  let requests = 0; // that have sent marks
  let rejectedRows = ""; // what is to be bought again, by the server
  let unkept = false; // there are marks that this browser could not keep, and nobody has saved
  let lost = ""; // which marks were not taken, until the server answers again
  let changed = () => {};
  let told = () => {};

  const name = (job, file) => `${job.job_key}/${file.attempt}/${file.index}`;
  const served = () => callsheet.about.marks;
  const store = () => `callsheet marks ${callsheet.about.key}`;

  function put(file, mark) {
    Object.assign(file, mark);
  }

  // The jobs have been read anew.
  function know(jobs) {
    files = new Map();
    for (const job of jobs) {
      for (const file of job.files) {
        const key = name(job, file);
        files.set(key, [job, file]);
        file.written ??= { decision: file.decision, note: file.note, decided_by: file.decided_by };
        put(file, waiting.get(key) ?? said.get(key) ?? file.written);
      }
    }
  }

  // What `list` says, each {key, decision, note}, is on the screen at once.
  function take(list) {
    for (const { key, decision, note } of list) {
      const mark = { decision, note, decided_by: null };
      const [, file] = files.get(key);
      const known = file.written;
      (served() ? waiting : said).set(key, mark);
      if (!served() && decision === known.decision && note === known.note) said.delete(key); // taken back
      put(file, mark);
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
      const sent = new Map(waiting);
      const list = [...sent].map(([key, { decision, note }]) => {
        const [job, attempt, index] = key.split("/");
        return { job_key: job, attempt: Number(attempt), index: Number(index), decision, note };
      });
      requests += 1;
      const wrong = await ask(served(), {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ marks: list, by: who() }),
      }).then(() => "", (error) => error.message);
      const refused = [];
      for (const [key, mark] of sent) {
        if (!wrong) said.set(key, mark);
        if (waiting.get(key) !== mark) continue; // it was marked again meanwhile
        waiting.delete(key);
        const [job, file] = files.get(key) ?? [];
        if (!wrong || !job) continue;
        put(file, said.get(key) ?? file.written);
        refused.push(job.of > 1 ? `${job.row_id} (${job.ordinal} of ${job.of})` : job.row_id);
      }
      if (wrong) {
        lost += `Not marked: ${refused.join(", ")}. `;
        told(lost + wrong, wrong === GONE ? "trouble" : "news"); // news stay until the next key
        changed();
      }
    }
    sending = false;
    await poll();
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
    if (!served()) return;
    const before = requests;
    try {
      const news = await (await ask(`${served()}?since=${number}`)).json();
      if (requests !== before) return; // it may be older than what was sent meanwhile
      number = news.number;
      for (const { job_key, attempt, index, decision, note, decided_by } of news.marks) {
        const key = `${job_key}/${attempt}/${index}`;
        said.set(key, { decision, note, decided_by });
        if (files.has(key) && !waiting.has(key)) put(files.get(key)[1], said.get(key));
      }
      const isNew = news.marks.length > 0 || news.again !== rejectedRows;
      rejectedRows = news.again;
      lost = "";
      told("");
      if (isNew) changed();
    } catch (error) {
      told(lost + error.message);
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
      localStorage.setItem(store(), JSON.stringify([...said]));
    } catch {
      unkept = true;
      told("This browser keeps no marks: save marks.csv before you leave this page.");
    }
  }

  function recall() {
    try {
      for (const [key, mark] of JSON.parse(localStorage.getItem(store()) ?? "[]")) said.set(key, mark);
    } catch {
      told("This browser keeps no marks: save marks.csv before you leave this page.");
    }
  }

  // The marks of these files of a job, to be changed; `change` has a decision, or a note.
  function set(job, which, change) {
    const list = which.map((file) => ({ key: name(job, file), decision: file.decision, note: file.note }));
    const wanted = list.map((mark) => ({ ...mark, ...change }));
    if (wanted.every(({ decision, note }, at) => decision === list[at].decision && note === list[at].note)) return;
    done.push(list);
    take(wanted);
  }

  // Takes the last mark of this page back. Returns the job and the file, or nothing.
  function undo() {
    const list = (done.pop() ?? []).filter(({ key }) => files.has(key));
    if (!list.length) return null;
    take(list);
    return files.get(list[0].key);
  }

  // How far the batch is reviewed. A served page knows all marks; another one has the counts, and its own marks.
  function reviewed() {
    const sum = { ...callsheet.about.counts };
    if (served()) {
      const all = sum.kept + sum.rejected + sum.to_review;
      const decisions = [...new Map([...said, ...waiting]).values()].map(({ decision }) => decision);
      const [kept, rejected] = ["kept", "rejected"].map((name) => decisions.filter((each) => each === name).length);
      return { kept, rejected, to_review: all - kept - rejected };
    }
    for (const key of said.keys()) {
      const [, file] = files.get(key) ?? [];
      if (!file) continue;
      sum[file.written.decision ?? "to_review"] -= 1;
      sum[file.decision ?? "to_review"] += 1;
    }
    return sum;
  }

  // The same by model, and by each setting that is compared: as it was written, and what was decided since.
  function shares() {
    const decided = [...files.values()].filter(([, file]) => file.decision !== file.written.decision);
    return Object.entries(callsheet.about.shares).map(([name, lines]) => [name, lines.map((line) => {
      const sum = { ...line };
      for (const [job, file] of decided) {
        if ((name === "model" ? job.model : job.settings[name]) !== line.value) continue;
        sum[file.written.decision ?? "to_review"] -= 1;
        sum[file.decision ?? "to_review"] += 1;
      }
      return { ...sum, files: sum.kept + sum.rejected + sum.to_review, each: costPerKept(line.spent, sum.kept) };
    })]);
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
    const samples = new Map();
    for (const { row_id, sample } of callsheet.jobs) {
      const key = JSON.stringify([row_id, sample]);
      samples.set(key, (samples.get(key) ?? 0) + 1);
    }
    const several = [...samples.values()].some((count) => count > 1);
    const rows = [...said.keys()].filter((key) => files.has(key)).map((key) => {
      const [job, { index, decision, note }] = files.get(key);
      return [job.row_id, job.sample, index, decision ?? "", note ?? "", ...(several ? [job.job_key] : [])];
    });
    const header = ["row_id", "sample", "index", "decision", "note", ...(several ? ["job_key"] : [])];
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
    return document.getElementById("who").value.trim() || null;
  }

  // A cookie, because to browsers all ports of a machine share theirs: each review has another port.
  function askForName() {
    const box = document.getElementById("who");
    const known = document.cookie.split("; ").find((each) => each.startsWith(`${WHO}=`));
    box.value = decodeURIComponent(known?.slice(WHO.length + 1) ?? "");
    document.getElementById("naming").hidden = false;
    box.addEventListener("change", () => {
      document.cookie = `${WHO}=${encodeURIComponent(box.value.trim())}; max-age=31536000; samesite=strict`;
    });
  }

  // `tell` is called with what is wrong, or with nothing when all is well.
  async function start(redraw, tell) {
    [changed, told] = [redraw, tell];
    addEventListener("beforeunload", (event) => {
      if (waiting.size || unkept) event.preventDefault(); // the browser asks whether to leave the page
    });
    if (served()) {
      askForName();
      again();
      document.addEventListener("visibilitychange", () => document.hidden || poll());
      return poll();
    }
    recall();
    know(callsheet.jobs);
    addEventListener("storage", ({ key }) => {
      if (key !== store()) return;
      recall(); // another tab of this page has marked
      know(callsheet.jobs);
      changed();
    });
    return null;
  }

  // `kept` or `rejected` where that is decided about every file of the job, `part` where about some.
  function of(job) {
    const [first, ...others] = new Set(job.files.map((file) => file.decision));
    return others.length ? "part" : first ?? "";
  }

  return {
    start, know, poll, set, undo, of, reviewed, shares, costPerKept, save,
    isUnmarked: (job) => job.files.some((file) => !file.decision),
    get toBuyAgain() {
      return rejectedRows;
    },
    get mine() {
      return served() ? 0 : said.size;
    },
  };
})();
