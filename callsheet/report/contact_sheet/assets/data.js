"use strict";
// Loads what was written, as scripts: a page that is opened from a disk may load nothing else. Each of them calls
// `summary`, `part`, `overview` or `texts` (sheet.py). A job has the fields of `Card`, and its place in the batch.

document.documentElement.classList.add("scripted");
const at = (id) => document.getElementById(id);

const callsheet = (() => {
  const MOST = 20; // parts that are kept
  const KEY = 16; // characters of a job's key in the overview
  const parts = new Map(); // number -> {version, jobs}; what was seen last is at the end
  const asked = new Map(); // number of a part -> who waits for it
  const failed = new Set(); // numbers of parts that could not be loaded
  const source = document.querySelector('script[src*="summary.js"]').getAttribute("src");
  let seen = []; // numbers of the parts that the grid shows
  let loading = false;
  let about = null;
  let coming = null; // the newest summary
  let overview = null;
  let places = new Map(); // key -> place
  let texts = null;
  let textsComing = null;
  let news = null; // the marks that were entered since the page was written
  let arrived = () => {};

  function load(src) {
    return new Promise((done) => {
      const script = document.createElement("script");
      script.src = src;
      script.onload = script.onerror = (event) => {
        script.remove();
        done(event.type === "load");
      };
      document.head.append(script);
    });
  }

  function numberOf(place) {
    return Math.floor(place / about.perPart);
  }

  function isHere(number) {
    return failed.has(number) || parts.get(number)?.version === about.parts[number]?.version;
  }

  // Loads what is asked for and then what is seen, a part at a time, as long as something is missing.
  async function fetchParts() {
    if (loading) return;
    loading = true;
    const next = () => [...asked.keys(), ...seen].find((number) => !isHere(number));
    for (let number = next(); number !== undefined; number = next()) {
      if (!await load(about.parts[number].src)) failed.add(number);
      for (const done of asked.get(number) ?? []) done();
      asked.delete(number);
      forget(number);
      arrived(parts.get(number)?.jobs ?? []);
    }
    loading = false;
  }

  // Drops the parts that were seen the longest time ago, but not the one that has come.
  function forget(but) {
    for (const number of parts.keys()) {
      if (parts.size > MOST && number !== but && !seen.includes(number)) parts.delete(number);
    }
  }

  // The grid shows these places.
  function see(shown) {
    seen = [...new Set(shown.map(numberOf))];
    for (const number of seen) {
      const part = parts.get(number);
      if (part && parts.delete(number)) parts.set(number, part);
    }
    fetchParts();
  }

  function job(place) {
    return parts.get(numberOf(place))?.jobs[place % about.perPart];
  }

  // Calls when the jobs at these places are here: at once, if they are.
  async function when(wanted, call) {
    const missing = [...new Set(wanted.filter((place) => !job(place)).map(numberOf))];
    if (missing.length) {
      const all = missing.map((number) => new Promise((done) => {
        failed.delete(number);
        asked.set(number, [...asked.get(number) ?? [], done]);
      }));
      fetchParts();
      await Promise.all(all);
    }
    if (wanted.every(job)) call();
  }

  // The jobs at these places, of however many parts: a part at a time, because few parts are kept.
  async function gather(wanted) {
    const jobs = [];
    for (const number of new Set(wanted.map(numberOf))) {
      const ofPart = wanted.filter((place) => numberOf(place) === number);
      await when(ofPart, () => jobs.push(...ofPart.map(job)));
    }
    return jobs;
  }

  const filesOf = (jobs) => jobs.flatMap((job) => job.files.map((file) => ({ job, file })));

  // The places of a row's jobs, which are neighbours.
  function row({ job_key, ordinal, of }) {
    const first = placeOf(job_key) - ordinal + 1;
    return Array.from({ length: of }, (_, number) => first + number);
  }

  // Of a whole key, or of one that an address has. Without the overview, only of the jobs that are here.
  function placeOf(key) {
    if (overview) return places.get(key.slice(0, KEY));
    return [...parts.values()].flatMap(({ jobs }) => jobs).find(({ job_key }) => job_key.startsWith(key))?.place;
  }

  // What this browser keeps of a person. A served page has it in a cookie: each review has another port, and to browsers
  // all ports of a machine share their cookies.
  function remember(name, value) {
    try {
      if (about.marks) document.cookie = `${name}=${encodeURIComponent(value)}; max-age=31536000; samesite=strict`;
      else localStorage.setItem(name, value);
    } catch {
      // This browser keeps nothing: it is so until the page is left.
    }
  }

  function recalled(name) {
    try {
      if (!about.marks) return localStorage.getItem(name) ?? "";
      const cookie = document.cookie.split("; ").find((each) => each.startsWith(`${name}=`));
      return decodeURIComponent(cookie?.slice(name.length + 1) ?? "");
    } catch {
      return "";
    }
  }

  // An address that no cache answers.
  function anew(src) {
    return src.includes("?") ? src : `${src}?${Date.now()}`;
  }

  // What was marked since the page was written.
  async function loadNews() {
    await load(anew(about.news));
    return news ?? { number: 0, marks: [], again: "" };
  }

  // Looks whether anything new was written. A signed address can have nothing behind it.
  async function look() {
    if (await load(anew(source))) failed.clear();
    if (coming.written === about.written) return false;
    if (coming.overview.version !== about.overview.version) await load(coming.overview.src);
    if (coming.texts.version !== about.texts.version) texts = null;
    about = coming;
    fetchParts();
    return true;
  }

  // What is searched; once, however many letters are typed until it is here.
  function loadTexts() {
    textsComing ??= load(about.texts.src).finally(() => {
      textsComing = null;
    });
    return textsComing;
  }

  return {
    job, see, when, gather, filesOf, row, placeOf, look, loadTexts, loadNews, remember, recalled,
    onArrival(call) {
      arrived = call;
    },
    loadOverview: () => load(about.overview.src),
    keyAt: (place) => overview?.keys[place] ?? job(place)?.job_key.slice(0, KEY),
    rowAt: (place) => overview?.rows[place] ?? job(place)?.row_id,
    get about() {
      return about;
    },
    get all() {
      return overview;
    },
    get searched() {
      return texts;
    },
    summary(value) {
      coming = value;
      about ??= value;
    },
    part(number, jobs) {
      for (const [index, each] of jobs.entries()) each.place = number * about.perPart + index;
      parts.delete(number);
      parts.set(number, { jobs, version: about.parts[number].version });
    },
    overview(value) {
      overview = value;
      places = new Map(value.keys.map((key, place) => [key, place]));
    },
    texts(value) {
      texts = value;
    },
    news(value) {
      news = value;
    },
  };
})();
