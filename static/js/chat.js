// The conversation page: ties the socket, the composer, the thread's scrolling and the list together.
import "./failures.js";
import "./swaps.js";
import { startComposer } from "./composer.js";
import { startDrawer } from "./drawer.js";
import { startFollow } from "./follow.js";
import { startLink } from "./link.js";
import { startList } from "./list.js";
import { startPlace } from "./place.js";
import { startRead } from "./read.js";
import { startThread } from "./thread.js";

const chat = document.getElementById("chat");
const list = startList(chat);
const follow = startFollow(document.getElementById("thread"), document.getElementById("newer"));
const read = startRead(chat);
const composer = startComposer(chat, follow);
startThread(chat, follow);
startPlace(chat, follow);
startDrawer(chat);
startLink(chat, {
  before: follow.before,
  after(frame) {
    // The thread goes another way: drawn anew, with what is half written kept.
    if (frame.kind === "branch") location.reload();
    follow.after();
    if (frame.kind === "html") {
      read.heard(frame);
      if (frame.content.includes('id="run"') || frame.content.includes('id="m-')) list.refresh();
    } else if (frame.ref !== "read") composer.heard(frame);
    if (frame.kind === "caught_up") list.refresh();
  },
  closed: composer.closed,
});
