// The conversation list: refreshed when something changes; the focus stays where it was, or goes to the next row.
const EVERY_MS = 20_000;

export function startList() {
  const list = document.getElementById("list");
  const menu = document.getElementById("menu");
  // What gets the focus when a swap has taken its place away.
  let wanted = [];
  // htmx lets several that come together be one.
  const refresh = () => document.hidden || htmx.trigger(list, "refresh");

  list.addEventListener("refresh", ({ detail }) => detail?.row && wanted.push(detail.row));
  list.addEventListener("htmx:before:swap", (event) => {
    const asked = new URL(event.detail.ctx.request.action, location).searchParams.get("until");
    // Older ones came meanwhile: what was asked before them would take them away again.
    if (event.target === list && asked !== null && asked !== list.querySelector("[name=until]").value) {
      event.preventDefault();
      refresh();
      return;
    }
    const focused = document.activeElement;
    if (!list.contains(focused)) return;
    const rows = [...list.querySelectorAll(".row")];
    const at = rows.indexOf(focused.closest(".item")?.firstElementChild);
    const near = at < 0 ? ["unarchived", "archived"] : [rows[at + 1]?.id, rows[at - 1]?.id];
    wanted.push(focused.id, ...near);
  });
  list.addEventListener("htmx:after:swap", () => {
    const next = wanted.map((id) => document.getElementById(id)).find(Boolean);
    if (document.activeElement === document.body) next?.focus();
    wanted = [];
  });

  // Tab leads from a row to its own menu, past those of the others.
  list.addEventListener("focusin", ({ target }) => {
    list.querySelector("[data-at]")?.removeAttribute("data-at");
    target.closest(".item")?.setAttribute("data-at", "");
  });
  list.addEventListener("keydown", (event) => {
    const item = event.target.closest(".item");
    if (!item || !["F2", "Delete"].includes(event.key)) return;
    event.preventDefault();
    const [row, source] = item.children;
    if (event.key === "Delete") return htmx.ajax("POST", `${row.pathname}delete/`, { swap: "none" });
    menu.showPopover({ source });
    htmx.ajax("GET", `${row.pathname}menu/?rename`, { source });
  });
  // Until the answer comes, nothing of another conversation's menu may be pressed.
  menu.addEventListener("beforetoggle", ({ newState }) => {
    if (newState === "open") menu.lastElementChild.replaceChildren();
  });
  menu.addEventListener("focusin", ({ target }) => target.matches("input") && target.select());

  setInterval(refresh, EVERY_MS);
  document.addEventListener("visibilitychange", refresh);
  return { refresh };
}
