// The composer: sends once, keeps the text until the server has it, changes queued and past messages.
import { startAttach } from "./attach.js";
import { startCommands } from "./commands.js";
import { startPaste } from "./paste.js";
import { keep, kept } from "./store.js";

// What a server's socket takes at most, in bytes: it hangs up on more, and sending again would never end.
const FRAME_MAX = 4 * 1024 * 1024 - 4096;
// How a socket closes that was sent more than something on the way takes, and those that nobody may open again.
const TOO_LARGE = 1009;
const FOR_GOOD = [4401, 4404];

// randomUUID exists only on secure origins; a server in the local network may be plain http.
const freshId = () => crypto.getRandomValues(new Uint32Array(4)).join("-");

export function startComposer(chat, follow) {
  const form = document.getElementById("composer");
  const dock = form.parentElement;
  const problem = document.getElementById("problem");
  const steer = document.getElementById("steer");
  const send = document.getElementById("send");
  const { text: box, kind, message_id: id } = form.elements;
  const draft = `draft.${chat.dataset.conversation}`;
  let written = kept(draft);
  // What was sent and is not acknowledged yet: the same id goes out again after a reconnect, so it runs once.
  let pending = null;
  // The button of a message that waits for the one before it.
  let next = null;

  const complain = (text) => (problem.textContent = text);
  const save = (text) => {
    // What another tab wrote since is not ours to clear away.
    if (text || kept(draft) === written) keep(draft, text);
    written = text;
  };
  // The draft, and the box unless another message is being changed in it.
  const write = (text) => {
    save(text);
    if (!id.value) box.value = text;
  };
  const edit = (what, message, text) => {
    Object.assign(id, { value: message, disabled: !message });
    dock.dataset.kind = kind.value = what;
    box.value = text;
    box.focus();
  };
  const cancel = () => edit("message.send", "", written);
  const files = startAttach(chat, { editing: () => id.value, complain });
  const text = () => (box.value.trim() || id.value || !files.paths().length ? box.value : box.dataset.filesOnly);
  const commands = startCommands(box, () => write(""), complain);
  const typed = () => {
    complain("");
    if (!id.value) save(box.value);
    commands.typed(id.value ? "" : box.value);
  };
  startPaste(box, files.add, typed);

  box.value = written;
  box.addEventListener("input", typed);
  box.addEventListener("keydown", (event) => {
    // 229: a key of an input method that some browsers report after its composition has ended.
    if (event.isComposing || event.keyCode === 229 || commands.key(event)) return;
    const queued = !box.value && !id.value && document.querySelector("#queued li:last-child [data-edit]");
    const act = {
      // Only while a reply runs and no message is being changed, there is something to steer.
      Enter: () => form.requestSubmit((event.ctrlKey || event.metaKey) && steer.checkVisibility() ? steer : send),
      Escape: id.value && cancel,
      ArrowUp: queued && (() => queued.click()),
    }[event.key];
    if (!act || event.shiftKey) return;
    event.preventDefault();
    act();
  });
  document.getElementById("cancel-edit").addEventListener("click", cancel);

  chat.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-edit], [data-branch], .starter");
    if (!button) return;
    const { edit: queued, branch: past } = button.dataset;
    const whole = button.closest(".chip, .msg")?.querySelector(".whole").content.textContent;
    if (whole === undefined) box.focus();
    else edit(queued ? "message.edit" : "message.branch", queued ?? past, whole);
  });

  form.addEventListener("htmx:ws:before:message:outgoing", (event) => {
    const { values } = event.detail.message;
    const isNew = values.kind === "message.send";
    values.text = text();
    if (isNew) values.attachments = files.paths();
    const tooLong = new Blob([JSON.stringify(values)]).size > FRAME_MAX && "too_long";
    const refusal = tooLong || (isNew && files.holds());
    complain(refusal ? problem.dataset[refusal] : "");
    if (pending) next = values.mode ? steer : send;
    if (refusal || pending || !values.text.trim()) {
      event.preventDefault();
      return;
    }
    values.ref = values.client_id = freshId();
    pending = values;
    form.classList.add("sending");
    follow.toEnd();
  });
  form.addEventListener("htmx:ws:error", () => {
    // The socket is closed for good; the status line says why.
    complain(document.getElementById("link").textContent);
    done();
  });

  function done() {
    pending = next = null;
    form.classList.remove("sending");
  }
  // Said twice it would make two branches.
  const once = () => pending.kind === "message.branch";
  chat.addEventListener("htmx:ws:after:connection", (event) => {
    complain("");
    if (pending && !once()) event.detail.connection.socket.send(JSON.stringify(pending));
  });

  return {
    heard(frame) {
      const failed = frame.kind === "error";
      if (failed) complain(problem.dataset[frame.code] ?? frame.detail);
      if (!pending || frame.ref !== pending.ref) return;
      const sent = pending;
      const waits = next;
      done();
      if (failed) return;
      if (sent.kind !== "message.send") cancel();
      // What was typed since stays; only what was sent goes.
      else if (written.startsWith(sent.text)) write(written.slice(sent.text.length));
      files.sent(sent.attachments ?? []);
      if (waits) form.requestSubmit(waits);
    },
    // The page is drawn anew: what was being changed goes on as a draft.
    leaves() {
      if (id.value && !pending) save([written, box.value].filter(Boolean).join("\n\n"));
    },
    closed(code) {
      if (!pending) return;
      complain(problem.dataset[code === TOO_LARGE ? "too_long" : once() ? "unsure" : "lost"]);
      if (code === TOO_LARGE || FOR_GOOD.includes(code) || once()) done();
    },
  };
}
