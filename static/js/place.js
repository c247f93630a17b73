// Where the reader is: links to messages, the place kept over reload and back, the days between messages.
const SAVE_MS = 200;
const SHOWN_MS = 2500;

export function startPlace(chat, follow) {
  const thread = document.getElementById("thread");
  const log = document.getElementById("log");
  const key = `branchline.place.${chat.dataset.conversation}`;
  const top = (element) => element.getBoundingClientRect().top - thread.getBoundingClientRect().top;
  let timer = 0;

  // The element, fetched with all that lies between when it is in an older part.
  async function reach(id) {
    for (let tries = 0; tries < 5 && !document.getElementById(id); tries += 1) {
      const older = document.getElementById("older");
      if (!older) break;
      const address = `${older.getAttribute("hx-get")}&to=${encodeURIComponent(id)}`;
      await htmx.ajax("GET", address, { source: older, target: older, swap: "outerHTML" });
      // Nothing came: there is no such message, or no connection.
      if (older.isConnected) break;
    }
    return document.getElementById(id);
  }

  async function show(id) {
    follow.leave();
    const found = await reach(id);
    if (!found) return;
    follow.leave();
    found.scrollIntoView({ block: "start" });
    found.tabIndex = -1;
    found.focus({ preventScroll: true });
    found.classList.add("here");
    setTimeout(() => found.classList.remove("here"), SHOWN_MS);
  }

  async function restore({ id, offset }) {
    const found = await reach(id);
    if (!found) return;
    follow.leave();
    thread.scrollTop += top(found) - offset;
  }

  const linked = () => /^#([mr]-[\w-]+)$/.exec(location.hash)?.[1];

  function save() {
    timer = 0;
    const seen = (message) => top(message) + message.clientHeight > 0;
    const first = follow.follows() ? null : [...log.querySelectorAll(":scope > .msg")].find(seen);
    try {
      if (first) sessionStorage.setItem(key, JSON.stringify({ id: first.id, offset: top(first) }));
      else sessionStorage.removeItem(key);
    } catch {
      // Storage may be closed to us; then a reload begins at the end.
    }
  }

  function saved() {
    // A visit by a link begins at the end.
    if (performance.getEntriesByType("navigation")[0]?.type === "navigate") return null;
    try {
      return JSON.parse(sessionStorage.getItem(key));
    } catch {
      return null;
    }
  }

  function days() {
    let before = "";
    for (const message of log.querySelectorAll(":scope > .msg:not([data-day=''])")) {
      const { day, at } = message.dataset;
      const known = message.previousElementSibling?.matches(".day") ? message.previousElementSibling : null;
      const today = !before && new Date(at).toDateString() === new Date().toDateString();
      if (day === before || today) known?.remove();
      else if (!known) {
        const line = document.createElement("p");
        line.className = "day";
        line.textContent = day;
        message.before(line);
      }
      before = day;
    }
  }

  // Earlier messages push what is read down; at the very top browsers do not hold it.
  let below = null;
  log.addEventListener("htmx:before:swap", (event) => {
    if (event.target.id === "older") below = thread.scrollHeight - thread.scrollTop;
  });
  document.addEventListener("htmx:after:swap", () => {
    if (below !== null) thread.scrollTop = thread.scrollHeight - below;
    below = null;
  });

  thread.addEventListener("scroll", () => (timer ||= setTimeout(save, SAVE_MS)), { passive: true });
  addEventListener("pagehide", save);
  addEventListener("hashchange", () => (linked() ? show(linked()) : follow.leave()));
  new MutationObserver(days).observe(log, { childList: true });
  days();
  const place = saved();
  if (linked()) show(linked());
  else if (place) restore(place);
}
