// The socket as htmx keeps it: where to come back, what was read, and what the status line says about it.
const ACK_MS = 250;

export function startLink(chat, { before, after, closed }) {
  const word = document.getElementById("link");
  const dot = document.getElementById("link-dot");
  let connection = null;
  let unread = 0;
  let timer = 0;

  const show = (state, text = word.dataset[state]) => {
    word.textContent = text;
    dot.dataset.link = state;
  };

  const acknowledge = () => {
    timer = 0;
    if (unread && connection?.socket?.readyState === WebSocket.OPEN) {
      connection.socket.send(JSON.stringify({ kind: "seen", frames: unread }));
      unread = 0;
    }
  };

  chat.addEventListener("htmx:ws:after:connection", (event) => {
    connection = event.detail.connection;
    unread = 0;
    show("connected");
  });

  chat.addEventListener("htmx:ws:before:message:incoming", () => before());

  chat.addEventListener("htmx:ws:after:message:incoming", (event) => {
    const { connection: from, message } = event.detail;
    const frame = JSON.parse(message.data);
    const url = new URL(from.url);
    // A frame of deltas only may name no event yet.
    if (frame.seq > Number(url.searchParams.get("after"))) {
      url.searchParams.set("after", frame.seq);
      from.url = url.href;
    }
    if (frame.kind === "status") show(frame.state);
    unread += 1;
    // A hidden tab's timers are slow; the server must not take that for a reader who stopped.
    if (unread >= 16 || document.hidden) acknowledge();
    else timer ||= setTimeout(acknowledge, ACK_MS);
    after(frame);
  });

  chat.addEventListener("htmx:ws:close", (event) => {
    const code = event.detail.code;
    const forGood = code >= 4000 && code !== 4408;
    show(forGood ? { 4401: "login", 4404: "gone" }[code] ?? "closed" : "reconnecting");
    document.getElementById("log-in").hidden = code !== 4401;
    closed(forGood);
  });

  // The browser may bring a left page back as it was, with a socket that is closed for good.
  addEventListener("pageshow", (event) => event.persisted && location.reload());
}
