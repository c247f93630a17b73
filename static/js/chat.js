// The conversation page: ties the socket, the composer, the thread's scrolling and the list together.
import "./failures.js";
import "./keys.js";
import "./swaps.js";
import { startComposer } from "./composer.js";
import { startDrawer } from "./drawer.js";
import { startFollow } from "./follow.js";
import { startLink } from "./link.js";
import { startList } from "./list.js";
import { startNews } from "./news.js";
import { startPlace } from "./place.js";
import { startThread } from "./thread.js";

const chat = document.getElementById("chat");
const list = startList();
const drawer = startDrawer();
const follow = startFollow(document.getElementById("thread"), document.getElementById("newer"));
const composer = startComposer(chat, follow);
const thread = startThread(chat, follow);
startPlace(follow);
const send = startLink(chat, { before: follow.before, after, closed: composer.closed });
const news = startNews(chat, send);

function after(frame) {
  const { kind, content = "" } = frame;
  // The thread goes another way: drawn anew, with what is half written kept.
  if (kind === "branch") {
    composer.leaves();
    location.reload();
  }
  thread.heard(frame);
  follow.after();
  news.heard(frame);
  if (kind !== "html" && frame.ref !== "read") composer.heard(frame);
  const said = content.includes('id="m-');
  if (said || content.includes('id="run"') || kind === "caught_up") list.refresh();
  if (said || content.includes("tool-output")) drawer.look();
}
