// What goes on here, for who looks elsewhere: the tab's title and icon, notifications, and what was seen.
import { kept } from "./store.js";

export function startNews(chat, send) {
  const name = document.getElementById("title");
  const icon = document.getElementById("icon");
  const words = document.getElementById("say").dataset;
  const plain = icon.getAttribute("href");
  let unseen = 0;
  // Up to where a reply has ended, and up to where the server knows that it was looked at.
  let over = 0;
  let told = 0;

  const show = () => {
    const going = document.getElementById("run").dataset.run === "running" ? `● ${words.replying} – ` : "";
    const title = `${unseen ? `(${unseen}) ` : ""}${going}${name.textContent} – Branchline`;
    if (document.title !== title) document.title = title;
    const wanted = unseen ? icon.dataset.dot : plain;
    if (icon.getAttribute("href") !== wanted) icon.href = wanted;
  };
  const see = () => {
    if (document.hidden) return;
    unseen = 0;
    if (over > told && send({ kind: "conversation.read", seq: over, ref: "read" })) told = over;
  };
  const notify = (kind) => {
    if (kept(`notify.${kind}`) !== "1" || window.Notification?.permission !== "granted") return;
    try {
      // The tag makes two tabs of one conversation tell it once.
      const options = { body: words[kind], tag: chat.dataset.conversation };
      const note = new Notification(name.textContent, options);
      note.addEventListener("click", () => {
        focus();
        note.close();
      });
    } catch {
      // Some phones take notifications from service workers only.
    }
  };

  document.addEventListener("htmx:after:swap", show);
  document.addEventListener("visibilitychange", () => {
    see();
    show();
  });
  chat.addEventListener("htmx:ws:after:connection", see);
  show();
  return {
    heard({ content, seq }) {
      const end = /id="run" data-run="(idle|failed)"/.exec(content)?.[1];
      if (!end) return;
      over = seq;
      see();
      // What the person stopped is no news to them.
      if (!document.hidden || content.includes('-stopped"')) return;
      unseen += 1;
      show();
      notify(end === "failed" ? "failed" : "ready");
    },
  };
}
