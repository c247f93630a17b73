// The socket as htmx keeps it: where to come back, what was read, and what the status line says about it.
const ACK_MS = 250;
// A socket whose other end is gone without a word (a closed laptop, a lost network) looks open for minutes.
const PING_MS = 15_000;
const ANSWER_MS = 5_000;
const SILENT = 4000;
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
  let deadline = 0;

  const show = (state, text = word.dataset[state]) => {
    word.textContent = text;
    dot.dataset.link = state;
    reconnect.hidden = state !== "ended";
  };

  // Whether it went out.
  const send = (frame) => {
    if (connection?.socket?.readyState !== WebSocket.OPEN) return false;
    connection.socket.send(JSON.stringify(frame));
    return true;
  };

  const acknowledge = () => {
    timer = 0;
    if (unread && send({ kind: "seen", frames: unread })) unread = 0;
  };

  // Whoever does not answer in time is not there: the next socket goes on where this one ended.
  const ping = () => {
    if (deadline || !send({ kind: "ping", ref: "ping" })) return;
    const { socket } = connection;
    deadline = setTimeout(() => {
      // The browser waits long for an answer to its goodbye; the next socket must not, nor end when it comes.
      socket.addEventListener("close", (event) => event.isTrusted && event.stopImmediatePropagation(), true);
      socket.close();
      socket.dispatchEvent(new CloseEvent("close", { code: SILENT }));
    }, ANSWER_MS);
  };
  const alive = () => {
    clearTimeout(deadline);
    deadline = 0;
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
    alive();
    show("connected");
  });

  chat.addEventListener("htmx:ws:before:message:incoming", () => {
    alive();
    before();
  });

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
    alive();
    const comesBack = from.config.reconnectCodes.includes(code);
    show({ [LOGGED_OUT]: "login", [GONE]: "gone" }[code] ?? (comesBack ? "reconnecting" : "ended"));
    document.getElementById("log-in").hidden = code !== LOGGED_OUT;
    closed(code);
  });

  setInterval(ping, PING_MS);
  addEventListener("online", ping);
  document.addEventListener("visibilitychange", () => document.hidden || ping());

  reconnect.addEventListener("click", () => {
    show("connecting");
    htmx.trigger(chat, "reconnect");
    document.getElementById("text").focus();
  });

  // The browser may bring a left page back as it was, with a socket that is closed for good.
  addEventListener("pageshow", (event) => event.persisted && location.reload());
  return send;
}
