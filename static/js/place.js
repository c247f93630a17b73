// Where the reader is: links to messages, and the place kept over reload and back.
export function startPlace(follow) {
  const thread = document.getElementById("thread");
  const log = document.getElementById("log");
  const top = (element) => element.getBoundingClientRect().top - thread.getBoundingClientRect().top;

  // The element, fetched with all that lies between when it is in an older part.
  async function reach(id) {
    for (let tries = 0; tries < 5 && !document.getElementById(id); tries += 1) {
      const older = document.getElementById("older");
      if (!older) break;
      const address = `${older.getAttribute("hx-get")}&to=${encodeURIComponent(id)}`;
      await htmx.ajax("GET", address, { source: older });
      // Nothing came: there is no such message, or no connection.
      if (older.isConnected) break;
    }
    const found = document.getElementById(id);
    if (found) follow.leave();
    return found;
  }

  async function show(id) {
    follow.leave();
    const found = await reach(id);
    if (!found) return;
    found.scrollIntoView({ block: "start" });
    found.tabIndex = -1;
    found.focus({ preventScroll: true });
  }

  async function restore({ id, offset }) {
    const found = await reach(id);
    if (found) thread.scrollTop += top(found) - offset;
  }

  const linked = () => /^#([mr]-[\w-]+)$/.exec(location.hash)?.[1];

  // Earlier messages push what is read down; at the very top browsers do not hold it.
  let below = null;
  log.addEventListener("htmx:before:swap", ({ target }) => {
    if (target.id === "older") below = thread.scrollHeight - thread.scrollTop;
  });
  document.addEventListener("htmx:after:swap", () => {
    if (below !== null) thread.scrollTop = thread.scrollHeight - below;
    below = null;
  });

  thread.addEventListener("scrollend", () => {
    const seen = (message) => top(message) + message.clientHeight > 0;
    const first = follow.follows() ? null : [...log.querySelectorAll(":scope > .msg")].find(seen);
    // Browsers limit how often it may be told.
    if (first || history.state) history.replaceState(first && { id: first.id, offset: top(first) }, "");
  });
  addEventListener("hashchange", () => (linked() ? show(linked()) : follow.leave()));
  if (history.state?.id) restore(history.state);
  else if (linked()) show(linked());
}
