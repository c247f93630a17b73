// The conversation list: refreshed when something changes, searched, walked through by keys; a sheet on a phone.
import { startChanges } from "./changes.js";
import { startMenu } from "./menu.js";

const EVERY_MS = 20_000;
const TOGETHER_MS = 300;
const TYPING_MS = 250;

export function startList(chat) {
  const list = document.getElementById("list");
  const find = document.getElementById("find");
  const words = find.elements.q;
  const stale = document.getElementById("stale");
  const opener = chat.querySelector("[data-open-list]");
  let timer = 0;
  // Somebody types a name or has a menu open: nothing moves under them. What came meanwhile is looked up afterwards.
  let held = false;
  let missed = false;
  // The row that Tab reaches, and what gets the focus when a swap has taken its place away.
  let at = "";
  let wanted = [];
  let asked = "";

  const load = () => {
    clearTimeout(timer);
    timer = 0;
    missed = held;
    if (!held) htmx.trigger(list, "refresh");
  };
  // Several changes come together; one look is enough.
  const later = () => {
    timer ||= setTimeout(load, TOGETHER_MS);
  };
  const hold = (on) => {
    held = on;
    if (!on && missed) load();
  };
  const rows = () => [...list.querySelectorAll(".row")];
  const rove = (row = document.getElementById(at) ?? list.querySelector(".row.current, .row")) => {
    at = row?.id ?? "";
    for (const each of list.querySelectorAll(".row, .more")) each.tabIndex = each.parentElement === row?.parentElement ? 0 : -1;
  };
  const changes = startChanges(chat, {
    hold,
    refresh(then) {
      wanted = [then];
      load();
    },
  });
  startMenu(list, { chosen: changes.act, opened: hold });

  list.addEventListener("htmx:before:swap", (event) => {
    const { raw } = event.detail.ctx.response;
    stale.hidden = raw.ok && !raw.redirected;
    if (held || !stale.hidden) {
      missed = true;
      event.preventDefault();
    }
    const focused = document.activeElement;
    if (!list.contains(focused)) return;
    const all = rows();
    const index = all.indexOf(focused.closest(".item")?.firstElementChild);
    wanted.push(focused.id, all[index + 1]?.id, all[index - 1]?.id);
  });
  list.addEventListener("htmx:error", () => {
    stale.hidden = false;
  });
  list.addEventListener("htmx:after:swap", () => {
    rove();
    const next = wanted.map((id) => document.getElementById(id)).find(Boolean);
    if (document.activeElement === document.body) next?.focus();
    wanted = [];
    if (asked !== words.value) document.getElementById("say").textContent = `${find.dataset.found} ${rows().length}`;
    asked = words.value;
  });
  stale.querySelector("button").addEventListener("click", load);

  list.addEventListener("focusin", ({ target }) => target.closest(".item") && rove(target.closest(".item").firstElementChild));
  list.addEventListener("keydown", (event) => {
    const { key, target } = event;
    const button = target.closest(".item")?.querySelector(".more");
    if (!button || event.altKey || event.ctrlKey || event.metaKey) return;
    const all = rows();
    const index = all.indexOf(target);
    const to = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: all.length - 1 }[key];
    const act = { F2: "rename", Delete: "delete" }[key];
    if (act) changes.act(act, button);
    else if (index >= 0 && to !== undefined) all[to]?.focus();
    else return;
    event.preventDefault();
  });
  list.addEventListener("click", ({ target }) => {
    const view = target.closest("[data-view]")?.dataset.view;
    if (view === undefined) return;
    find.elements.archived.disabled = !view;
    list.querySelector("[name=until]").value = "";
    // The way back, or the way here.
    wanted = ["unarchived", "archived"];
    load();
  });

  words.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(load, TYPING_MS);
  });
  words.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && words.value) {
      words.value = "";
      load();
    } else if (event.key === "ArrowDown") rows()[0]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  const sheet = (open) => {
    document.body.classList.toggle("list-open", open);
    chat.inert = open;
    opener.setAttribute("aria-expanded", open);
    if (open) document.querySelector(".list [data-close-list]").focus();
    else opener.focus();
  };
  opener.addEventListener("click", () => sheet(true));
  for (const closer of document.querySelectorAll("[data-close-list]")) closer.addEventListener("click", () => sheet(false));
  document.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase();
    const control = event.ctrlKey || event.metaKey;
    const typing = event.target.closest("input, textarea, select");
    if (key === "escape" && !held && document.body.classList.contains("list-open")) sheet(false);
    else if (key === "/" && !typing && !control && !event.altKey) {
      if (opener.checkVisibility()) sheet(true);
      words.focus();
    } else if (key === "o" && control && event.shiftKey) document.getElementById("new").requestSubmit();
    else if (key === "z" && control && !typing) changes.undo();
    else return;
    event.preventDefault();
  });

  rove();
  setInterval(() => document.hidden || later(), EVERY_MS);
  document.addEventListener("visibilitychange", () => document.hidden || later());
  return { refresh: later };
}
