// The composer: sends once, keeps the text until the server has it, keeps drafts, edits queued messages.
import { keep, kept } from "./store.js";

// What a server's socket takes at most, in bytes: it hangs up on more, and sending again would never end.
const FRAME_MAX = 4 * 1024 * 1024 - 4096;
// How a socket closes that was sent more than something on the way takes, and those that nobody may open again.
const TOO_LARGE = 1009;
const FOR_GOOD = [4401, 4404];

function freshId() {
  // randomUUID exists only on secure origins; a server in the local network may be plain http.
  if (crypto.randomUUID) return crypto.randomUUID();
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function startComposer(chat, follow) {
  const form = document.getElementById("composer");
  const box = document.getElementById("text");
  const problem = document.getElementById("problem");
  const editing = document.getElementById("editing");
  const draft = `draft.${chat.dataset.conversation}`;
  // What was sent and is not acknowledged yet: the same id goes out again after a reconnect, so it runs once.
  let pending = null;

  const grow = () => {
    box.style.height = "auto";
    box.style.height = `${box.scrollHeight}px`;
  };
  const write = (text) => {
    box.value = text;
    grow();
    if (!form.elements.message_id.value) keep(draft, text);
  };
  const edit = (id, text) => {
    form.elements.message_id.value = id;
    form.elements.message_id.disabled = !id;
    form.elements.kind.value = id ? "message.edit" : "message.send";
    form.classList.toggle("edits", Boolean(id));
    editing.hidden = !id;
    box.value = text;
    grow();
    box.focus();
  };
  const steer = document.getElementById("steer");
  const send = (button) => {
    if (box.value.trim() && !pending) form.requestSubmit(button);
  };
  // A reply runs and no queued message is being changed: then the button is there.
  const steers = () => steer.checkVisibility();
  const said = (frame) => problem.dataset[frame.code.replace(/_(.)/g, (_all, letter) => letter.toUpperCase())] ?? frame.detail;

  write(kept(draft));
  box.addEventListener("input", () => {
    problem.textContent = "";
    write(box.value);
  });
  box.addEventListener("keydown", (event) => {
    // 229: a key of an input method that some browsers report after its composition has ended.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229) {
      event.preventDefault();
      send((event.ctrlKey || event.metaKey) && steers() ? steer : null);
    } else if (event.key === "Escape" && form.elements.message_id.value) edit("", kept(draft));
  });
  document.getElementById("cancel-edit").addEventListener("click", () => edit("", kept(draft)));

  chat.addEventListener("click", (event) => {
    const starter = event.target.closest("[data-starter]");
    const editor = event.target.closest("[data-edit]");
    if (starter) {
      write(starter.dataset.starter);
      box.focus();
      send();
    } else if (editor) {
      edit(editor.dataset.edit, editor.closest(".chip").querySelector(".whole").content.textContent);
    }
  });

  form.addEventListener("htmx:ws:before:message:outgoing", (event) => {
    const { values } = event.detail.message;
    const tooLarge = new Blob([JSON.stringify(values)]).size > FRAME_MAX;
    if (tooLarge) problem.textContent = problem.dataset.tooLong;
    if (tooLarge || pending || !values.text.trim()) {
      event.preventDefault();
      return;
    }
    values.ref = freshId();
    if (values.kind === "message.send") values.client_id = values.ref;
    pending = { ref: values.ref, text: values.text, frame: { ...values } };
    problem.textContent = "";
    form.classList.add("sending");
    follow.toEnd();
  });
  form.addEventListener("htmx:ws:error", () => {
    // The socket is closed for good; the status line says why.
    problem.textContent = document.getElementById("link").textContent;
    done();
  });

  function done() {
    pending = null;
    form.classList.remove("sending");
  }
  function again(connection) {
    problem.textContent = "";
    if (pending) connection.socket.send(JSON.stringify(pending.frame));
  }
  chat.addEventListener("htmx:ws:after:connection", (event) => again(event.detail.connection));

  return {
    heard(frame) {
      if (frame.kind === "error" && frame.ref !== pending?.ref) {
        problem.textContent = said(frame);
        return;
      }
      if (!pending || frame.ref !== pending.ref) return;
      if (frame.kind === "error") problem.textContent = said(frame);
      else if (pending.frame.kind === "message.edit") edit("", kept(draft));
      // What was typed since stays; only what was sent goes.
      else if (box.value === pending.text) write("");
      else if (box.value.startsWith(pending.text)) write(box.value.slice(pending.text.length));
      done();
    },
    closed(code) {
      if (!pending) return;
      problem.textContent = code === TOO_LARGE ? problem.dataset.tooLong : problem.dataset.lost;
      if (code === TOO_LARGE || FOR_GOOD.includes(code)) done();
    },
  };
}
