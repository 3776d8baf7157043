// Shows exact times in the zone of the reader, and keeps a page up to date. When the stream of the page tells of a
// change, and every few seconds, the script reads the page again and changes only what differs, so that focus, scroll
// positions, selected text and open details stay.
"use strict";
(() => {
  const main = document.getElementById("main");
  const zone = new Intl.DateTimeFormat("sv-SE", {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    timeZoneName: "short",
  });
  localTimes(main);
  if (!main.dataset.every) return;

  const patience = 5000; // how long the server may take to answer, in ms
  const loaded = Date.now();
  let stream = null, attempts = 0, retry = 0; // the stream, and when to open it again
  let timer = 0, reading = false, again = false, failures = 0; // reading the page
  let fresh = loaded; // when the server sent what the page shows
  let trouble = ""; // why the page is not up to date
  let over = false; // the page stays as it is from now on

  // note tells, in a few words, that the page is not up to date. said tells people who cannot see the page its new
  // title, which has the state of the execution.
  const note = document.createElement("p");
  const said = document.createElement("p");
  note.className = "stale";
  said.className = "hidden";
  for (const p of [note, said]) p.setAttribute("role", "status");
  main.before(note, said);

  // Over HTTP/1.1 a browser opens at most six connections to a host, for all of its tabs. If each tab kept one for its
  // stream, the seventh could not load anything. So only the newest four of the visible tabs have a stream, and the
  // others read their pages every few seconds. A hidden tab has none.
  const most = 4;
  const protocol = performance.getEntriesByType("navigation")[0]?.nextHopProtocol ?? "";
  const tabs = /^h[23]/.test(protocol) || !window.BroadcastChannel ? null : new BroadcastChannel("belay live");
  const me = Math.random();
  const younger = new Set(); // tabs that opened their streams after this one
  tabs?.addEventListener("message", ({data}) => {
    if (data.opened) {
      younger.add(data.opened);
      if (stream && younger.size >= most) hangUp();
    } else if (younger.delete(data.closed)) {
      listen();
    }
  });

  // localTimes writes exact times in the zone of the reader. Their titles keep the times in UTC.
  function localTimes(where) {
    for (const exact of where.querySelectorAll("time + .exact:not([title])")) {
      const at = new Date(exact.previousElementSibling.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      exact.title = exact.textContent;
      exact.textContent = zone.format(at);
    }
  }

  function listen() {
    clearTimeout(retry);
    if (over || stream || document.hidden || !main.dataset.stream || younger.size >= most) return;
    const opening = stream = new EventSource(main.dataset.stream);
    younger.clear();
    tabs?.postMessage({opened: me});
    stream.onopen = () => {
      attempts = 0;
      show();
    };
    stream.onerror = () => {
      if (stream !== opening) return;
      hangUp();
      retry = setTimeout(listen, pause(attempts++));
      read();
    };
    stream.addEventListener("changed", read);
  }

  function hangUp() {
    if (!stream) return;
    stream.close();
    stream = null;
    tabs?.postMessage({closed: me});
    show();
  }

  // pause is the time before the next attempt: up to half a minute, and different in each browser.
  const pause = (n) => Math.min(30000, 1000 * 2 ** n) * (0.5 + Math.random() / 2);

  async function read() {
    if (over || document.hidden) return;
    if (reading) {
      again = true;
      return;
    }
    clearTimeout(timer);
    reading = true;
    do {
      again = false;
      if (!edited()) await readOnce();
    } while (again && !trouble && !over);
    reading = false;
    show();
    if (!over && !document.hidden) timer = setTimeout(read, trouble ? pause(failures++) : 1000 * main.dataset.every);
  }

  async function readOnce() {
    // After an action the page has a note about it, for a while.
    const {page} = main.dataset;
    if (page && Date.now() - loaded > 10000 && location.pathname + location.search !== page) {
      history.replaceState(null, "", page + location.hash);
    }
    const sent = Date.now();
    let next;
    try {
      const answer = await fetch(location.pathname + location.search, {
        cache: "no-store", headers: {Accept: "text/html"}, redirect: "manual", signal: AbortSignal.timeout(patience),
      });
      if (answer.type === "opaqueredirect" || answer.status === 401) { // the session is over
        over = true;
        hangUp();
        location.reload();
        return;
      }
      if (answer.status === 429 || answer.status >= 500) {
        trouble = `the server answers with the error ${answer.status}`;
        return;
      }
      next = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch {
      trouble = "the server does not answer";
      return;
    }
    const fetched = next.getElementById("main");
    if (!fetched) {
      trouble = "the answer of the server is no page";
      return;
    }
    trouble = "";
    failures = 0;
    if (edited()) return; // the person has begun to write in the meantime
    fresh = sent;
    put(next, fetched);
  }

  // put shows a page that was read.
  function put(next, fetched) {
    for (const n of fetched.querySelectorAll("noscript")) n.remove();
    const focused = document.activeElement;
    label(fetched);
    localTimes(fetched);
    mend(main, fetched);
    if (focused !== document.activeElement && focused.isConnected) focused.focus({preventScroll: true});
    if (document.title !== next.title) {
      document.title = next.title;
      said.textContent = next.title;
    }
    if (!main.dataset.every) { // the execution has ended, or the page is gone
      over = true;
      hangUp();
    }
  }

  // edited reports whether the person has written something that is not sent yet: the page then stays as it is.
  function edited() {
    return [...main.querySelectorAll("input, select, textarea")].some((f) => {
      if (f.type === "checkbox" || f.type === "radio") return f.checked !== f.defaultChecked;
      if (f.localName !== "select") return f.type !== "hidden" && f.value !== f.defaultValue;
      return f.selectedIndex !== Math.max(0, [...f.options].findIndex((o) => o.defaultSelected));
    });
  }

  // label writes into the link that stops the updates how the page is kept up to date.
  function label(where) {
    const link = where.querySelector(".live");
    if (!link) return;
    let how = `Updated every ${main.dataset.every} s`;
    if (trouble) how = "Not live";
    else if (edited()) how = "Waits until the form is sent";
    else if (stream?.readyState === EventSource.OPEN) how = "Live";
    link.hidden = false;
    if (link.textContent !== `${how} · stop`) link.textContent = `${how} · stop`;
  }

  function show() {
    label(main);
    const time = new Date(fresh).toLocaleTimeString();
    const text = trouble && `Not live: ${trouble}. The page shows the state at ${time}.`;
    if (note.textContent !== text) note.textContent = text;
  }

  // mend makes an element equal to another one, and keeps the parts that both have.
  function mend(old, next) {
    if (old.isEqualNode(next)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.data = next.data;
      return;
    }
    if (old.localName === "svg") { // an animation begins only in a new picture
      old.replaceWith(document.importNode(next, true));
      return;
    }
    const kept = (name) => name === "open" && old.localName === "details"; // the person opens and closes details
    for (const {name} of [...old.attributes]) if (!next.hasAttribute(name) && !kept(name)) old.removeAttribute(name);
    for (const {name, value} of next.attributes) {
      if (old.getAttribute(name) !== value && !kept(name)) old.setAttribute(name, value);
    }
    mendChildren(old, keysOf(old), keysOf(next));
  }

  function mendChildren(parent, had, wanted) {
    for (const [key, node] of had) if (!wanted.has(key)) node.remove();
    let at = parent.firstChild;
    for (const [key, next] of wanted) {
      const old = had.get(key);
      if (!old) parent.insertBefore(document.importNode(next, true), at);
      else {
        if (old === at) at = at.nextSibling;
        else parent.insertBefore(old, at);
        mend(old, next);
      }
    }
  }

  // keysOf returns the children of an element by their keys: children with equal keys show the same thing. Rows are
  // told apart by their first links, and other children by their names and, if they have no name, by their places.
  function keysOf(parent) {
    const all = new Map();
    const counts = new Map();
    for (const node of parent.childNodes) {
      let key = node.nodeName;
      if (node.nodeType === Node.ELEMENT_NODE) {
        const link = /^(tr|li)$/.test(node.localName) && node.querySelector("a[href]");
        key += ` ${node.id || node.getAttribute("aria-labelledby") || (link ? link.getAttribute("href") : "")}`;
      }
      const n = counts.get(key) ?? 0;
      counts.set(key, n + 1);
      all.set(`${key} ${n}`, node);
    }
    return all;
  }

  function rest() {
    clearTimeout(timer);
    clearTimeout(retry);
    hangUp();
  }

  function wake() {
    younger.clear(); // the person looks at this tab
    read();
    listen();
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? rest() : wake()));
  addEventListener("pagehide", rest);
  addEventListener("pageshow", (e) => e.persisted && wake());
  main.addEventListener("input", show);
  for (const n of main.querySelectorAll("noscript")) n.remove();
  show();
  if (!document.hidden) {
    timer = setTimeout(read, 1000 * main.dataset.every);
    listen();
  }
})();
