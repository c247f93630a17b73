// The drawer: a column beside the conversation, on a narrow screen a sheet over it.
import { keep, kept } from "./store.js";

const NARROW = matchMedia("(max-width: 1100px)");
const LOOK_MS = 500;

export function startDrawer(chat) {
  const drawer = document.getElementById("drawer");
  const body = document.getElementById("drawer-body");
  const title = document.getElementById("drawer-title");
  const opener = document.getElementById("files-button");
  let from = opener;
  let timer = 0;

  const refresh = () => {
    timer ||= setTimeout(() => {
      timer = 0;
      // A question that is open stays as it is.
      if (!body.querySelector("details[open]")) htmx.trigger(body, "refresh");
    }, LOOK_MS);
  };
  const show = (open) => {
    drawer.hidden = !open;
    opener.setAttribute("aria-expanded", open);
    const covers = open && NARROW.matches;
    for (const part of document.querySelectorAll("#chat, #sidebar, .skip")) part.inert = covers;
    document.body.classList.toggle("sheet-open", covers);
  };
  const turn = (open) => {
    if (open && drawer.hidden) from = document.activeElement;
    show(open);
    if (!NARROW.matches) keep("drawer", open ? "files" : "");
    if (open) refresh();
    else if (location.hash === "#files") history.replaceState(history.state, "", location.pathname);
    const target = open ? title : from;
    (target === document.body ? opener : target).focus();
  };
  const linked = () => location.hash === "#files" && turn(true);

  opener.addEventListener("click", () => turn(drawer.hidden));
  drawer.querySelector("[data-close-drawer]").addEventListener("click", () => turn(false));
  document.addEventListener("branchline:files", () => turn(true));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !drawer.hidden && (NARROW.matches || drawer.contains(event.target))) turn(false);
  });
  // What lies behind a sheet is inert: a click there arrives at the body.
  document.addEventListener("click", ({ target }) => target === document.body && !drawer.hidden && NARROW.matches && turn(false));
  NARROW.addEventListener("change", () => show(!drawer.hidden));
  addEventListener("hashchange", linked);
  show(Boolean(kept("drawer")) && !NARROW.matches);
  if (!drawer.hidden) refresh();
  linked();
  chat.addEventListener("htmx:ws:after:message:incoming", (event) => {
    if (/tool-output|files\?path=/.test(event.detail.message.data)) refresh();
  });
  body.addEventListener("toggle", refresh, true);
  // The row that was deleted had the focus.
  body.addEventListener("htmx:after:swap", (event) => event.detail.ctx.request?.method === "DELETE" && title.focus());
}
