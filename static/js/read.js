// Tells the server up to where this conversation was looked at, once somebody can see it.
export function startRead(chat) {
  let socket = null;
  let shown = 0;
  let told = 0;
  const tell = () => {
    if (document.hidden || shown <= told || socket?.readyState !== WebSocket.OPEN) return;
    told = shown;
    socket.send(JSON.stringify({ kind: "conversation.read", seq: shown, ref: "read" }));
  };

  chat.addEventListener("htmx:ws:after:connection", (event) => {
    socket = event.detail.connection.socket;
    tell();
  });
  document.addEventListener("visibilitychange", tell);
  return {
    heard(frame) {
      if (/id="run" data-run="(idle|failed)"/.test(frame.content)) shown = Math.max(shown, frame.seq);
      tell();
    },
  };
}
