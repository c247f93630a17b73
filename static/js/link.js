// The socket as htmx keeps it: where to come back, what was read, and what the status line says about it.
const ACK_MS = 250;
const LOGGED_OUT = 4401;
const GONE = 4404;

export function startLink(chat, { before, after, closed }) {
  const word = document.getElementById("link");
  const dot = document.getElementById("link-dot");
  const reconnect = document.getElementById("reconnect");
  let connection = null;
  let read = 0;
  let unread = 0;
  let timer = 0;

  const show = (state, text = word.dataset[state]) => {
    word.textContent = text;
    dot.dataset.link = state;
    reconnect.hidden = state !== "ended";
  };

  const acknowledge = () => {
    timer = 0;
    if (unread && connection?.socket?.readyState === WebSocket.OPEN) {
      connection.socket.send(JSON.stringify({ kind: "seen", frames: unread }));
      unread = 0;
    }
  };

  // Where the next socket goes on: behind what was read.
  const aim = (to) => {
    const url = new URL(to.url);
    url.searchParams.set("after", Math.max(read, url.searchParams.get("after")));
    to.url = url.href;
  };

  chat.addEventListener("htmx:ws:before:connection", (event) => aim(event.detail.connection));

  chat.addEventListener("htmx:ws:after:connection", (event) => {
    connection = event.detail.connection;
    unread = 0;
    show("connected");
  });

  chat.addEventListener("htmx:ws:before:message:incoming", () => before());

  chat.addEventListener("htmx:ws:after:message:incoming", (event) => {
    const { connection: from, message } = event.detail;
    const frame = JSON.parse(message.data);
    // A frame of deltas only may name no event yet.
    if (frame.seq > read) {
      read = frame.seq;
      aim(from);
    }
    if (frame.kind === "status") show(frame.state);
    unread += 1;
    // A hidden tab's timers are slow; the server must not take that for a reader who stopped.
    if (unread >= 16 || document.hidden) acknowledge();
    else timer ||= setTimeout(acknowledge, ACK_MS);
    after(frame);
  });

  chat.addEventListener("htmx:ws:close", (event) => {
    const { code, connection: from } = event.detail;
    const comesBack = from.config.reconnectCodes.includes(code);
    show({ [LOGGED_OUT]: "login", [GONE]: "gone" }[code] ?? (comesBack ? "reconnecting" : "ended"));
    document.getElementById("log-in").hidden = code !== LOGGED_OUT;
    closed(code);
  });

  reconnect.addEventListener("click", () => {
    show("connecting");
    htmx.trigger(chat, "reconnect");
    document.getElementById("text").focus();
  });

  // The browser may bring a left page back as it was, with a socket that is closed for good.
  addEventListener("pageshow", (event) => event.persisted && location.reload());
}
