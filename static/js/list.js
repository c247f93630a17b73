// The conversation list: refreshed when this conversation changes, a sheet on a phone.
const EVERY_MS = 20_000;

export function startList(chat) {
  const list = document.getElementById("list");
  const opener = chat.querySelector("[data-open-list]");
  let timer = 0;

  const refresh = () => {
    // Several changes come together; one look is enough.
    timer ||= setTimeout(() => {
      timer = 0;
      htmx.trigger(list, "refresh");
    }, 300);
  };
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
    if (event.key === "Escape" && document.body.classList.contains("list-open")) sheet(false);
  });
  setInterval(() => document.hidden || refresh(), EVERY_MS);
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
  return { refresh };
}
