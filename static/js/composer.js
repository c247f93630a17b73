// The composer: sends once, keeps the text until the server has it, changes queued and past messages.
import { startFiles } from "./attach.js";
import { startCommands } from "./commands.js";
import { startDraft } from "./drafts.js";
import { startPaste } from "./paste.js";
import { keep, kept } from "./store.js";

// What a server's socket takes at most, in bytes: it hangs up on more, and sending again would never end.
const FRAME_MAX = 4 * 1024 * 1024 - 4096;
// How a socket closes that was sent more than something on the way takes, and those that nobody may open again.
const TOO_LARGE = 1009;
const FOR_GOOD = [4401, 4404];
// Safari tells the end of an input method's word before the Enter that ended it.
const IME_MS = 50;

function freshId() {
  // randomUUID exists only on secure origins; a server in the local network may be plain http.
  if (crypto.randomUUID) return crypto.randomUUID();
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function startComposer(chat, follow) {
  const form = document.getElementById("composer");
  const box = document.getElementById("text");
  const problem = document.getElementById("problem");
  const held = document.getElementById("held");
  const editing = document.getElementById("editing");
  const steer = document.getElementById("steer");
  const { kind: kinds, message_id: ids } = form.elements;
  const own = startDraft(chat.dataset.conversation);
  const unsent = `unsent.${chat.dataset.conversation}`;
  // What was sent and is not acknowledged yet: the same id goes out again after a reconnect or a reload, so it runs once.
  let pending = JSON.parse(kept(unsent, "sessionStorage") || "null");
  // The button of a message that waits for its uploads, or for the one before it.
  let wish = null;
  let composed = -IME_MS;

  const complain = (text) => (problem.textContent = text);
  const grow = () => {
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight}px`;
  };
  const write = (text) => {
    if (box.value !== text) box.value = text;
    grow();
    if (!ids.value) own.set({ text });
  };
  const edit = (kind, id = "", text = own.draft.text) => {
    ids.value = id;
    ids.disabled = !id;
    kinds.value = kind;
    form.parentElement.classList.toggle("edits", Boolean(id));
    form.parentElement.dataset.kind = kind;
    editing.hidden = !id;
    editing.firstElementChild.textContent = editing.dataset[kind] ?? "";
    box.value = text;
    grow();
    box.focus();
  };
  const cancel = () => edit("message.send");
  const files = startFiles(chat, own, { changed: () => wish && attempt(), closed: () => ids.value, problem: complain });
  const text = () => (box.value.trim() || ids.value || !files.paths().length ? box.value : box.dataset.filesOnly);
  const attempt = (button = wish) => {
    wish = null;
    const waits = !ids.value && files.busy();
    held.hidden = !waits;
    if (waits || pending) wish = button;
    else if (!ids.value && files.failed()) complain(problem.dataset.filesFailed);
    else if (text().trim()) form.requestSubmit(button);
  };
  const send = document.getElementById("send");
  const said = (frame) => problem.dataset[frame.code.replace(/_(.)/g, (_all, letter) => letter.toUpperCase())] ?? frame.detail;
  const commands = startCommands(box, () => write(""), complain);
  const typed = () => {
    complain("");
    write(box.value);
    commands.typed(ids.value ? "" : box.value);
  };
  startPaste(box, Number(box.dataset.limit), files.add, typed);

  write(own.draft.text);
  form.classList.toggle("sending", Boolean(pending));
  box.addEventListener("input", typed);
  box.addEventListener("compositionend", (event) => (composed = event.timeStamp));
  box.addEventListener("keydown", (event) => {
    // 229: a key of an input method that some browsers report after its composition has ended.
    if (event.isComposing || event.keyCode === 229 || event.timeStamp - composed < IME_MS) return;
    const queued = event.key === "ArrowUp" && !event.altKey && !box.value && !ids.value && document.querySelector("#queued li:last-child [data-edit]");
    if (commands.key(event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      // A reply runs and no message is being changed: then the button is there.
      attempt((event.ctrlKey || event.metaKey) && steer.checkVisibility() ? steer : send);
    } else if (event.key === "Escape" && ids.value) {
      event.preventDefault();
      cancel();
    } else if (queued) {
      event.preventDefault();
      queued.click();
    }
  });
  document.getElementById("cancel-edit").addEventListener("click", cancel);
  held.querySelector("button").addEventListener("click", () => {
    wish = null;
    held.hidden = true;
    box.focus();
  });

  chat.addEventListener("click", ({ target }) => {
    const starter = target.closest("[data-starter]");
    const changes = target.closest("[data-edit], [data-branch]");
    if (starter) {
      write(starter.dataset.starter);
      box.focus();
      attempt(send);
    } else if (changes) {
      const whole = changes.closest(".chip, .msg").querySelector(".whole").content.textContent;
      edit(changes.dataset.edit ? "message.edit" : "message.branch", changes.dataset.edit ?? changes.dataset.branch, whole);
    }
  });

  form.addEventListener("htmx:ws:before:message:outgoing", (event) => {
    const { values } = event.detail.message;
    const isNew = values.kind === "message.send";
    values.text = text();
    if (isNew) values.attachments = files.paths();
    const tooLarge = new Blob([JSON.stringify(values)]).size > FRAME_MAX;
    if (tooLarge) complain(problem.dataset.tooLong);
    const waits = pending || (isNew && (files.busy() || files.failed()));
    if (waits) attempt(values.mode ? steer : send);
    if (tooLarge || waits || !values.text.trim()) {
      event.preventDefault();
      return;
    }
    values.ref = values.client_id = freshId();
    pending = { ref: values.ref, text: values.text, frame: { ...values } };
    if (isNew) keep(unsent, JSON.stringify(pending), "sessionStorage");
    complain("");
    form.classList.add("sending");
    follow.toEnd();
  });
  form.addEventListener("htmx:ws:error", () => {
    // The socket is closed for good; the status line says why.
    complain(document.getElementById("link").textContent);
    wish = null;
    done();
  });

  // Said twice it would make two branches.
  const once = () => pending.frame.kind === "message.branch";
  function done() {
    pending = null;
    keep(unsent, "", "sessionStorage");
    form.classList.remove("sending");
  }
  chat.addEventListener("htmx:ws:after:connection", (event) => {
    complain("");
    if (pending && !once()) event.detail.connection.socket.send(JSON.stringify(pending.frame));
  });

  return {
    heard(frame) {
      const ours = pending && frame.ref === pending.ref;
      if (frame.kind === "error") complain(said(frame));
      if (!ours) return;
      const sent = pending;
      done();
      if (frame.kind === "error") {
        wish = null;
        return;
      }
      if (sent.frame.kind !== "message.send") cancel();
      // What was typed since stays; only what was sent goes.
      else if (own.draft.text.startsWith(sent.text)) settle(own.draft.text.slice(sent.text.length));
      files.sent(sent.frame.attachments ?? []);
      if (wish) attempt();
    },
    closed(code) {
      if (!pending) return;
      complain(code === TOO_LARGE ? problem.dataset.tooLong : once() ? problem.dataset.unsure : problem.dataset.lost);
      if (code === TOO_LARGE || FOR_GOOD.includes(code) || once()) done();
    },
  };

  // The draft, and the box unless another message is being changed in it.
  function settle(rest) {
    if (ids.value) own.set({ text: rest });
    else write(rest);
  }
}
