// Update a page of `hmx board` in place: every few seconds fetch its newer content from the server it came from, and
// change only what differs. Scroll position, zoom, selection and open sections stay.
(() => {
"use strict";

const EVERY = 5000; // milliseconds
const main = document.querySelector("main"), status = document.createElement("p");
status.setAttribute("role", "status");
status.className = "warning";
main.before(status);
let updated = new Date();

// What belongs together in two versions of a list of nodes.
const key = node => {
  if (node.nodeType !== Node.ELEMENT_NODE) return node.nodeName;
  const title = node.matches("figure, details, tr") ? node.querySelector("figcaption h3, summary, input") : null;
  const name = /^H\d$/.test(node.nodeName) ? node.textContent : title ? title.value || title.textContent : "";
  return `${node.nodeName} ${name}`;
};

function update(old, newer) {
  if (old.isEqualNode(newer)) return;
  if (old.nodeType !== Node.ELEMENT_NODE) { old.textContent = newer.textContent; return; }
  if (old.matches("figure.plot") || newer.matches("figure.plot")) { globalThis.updateFigure(old, newer); return; }
  for (const { name, value } of [...newer.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (name !== "open" && !newer.hasAttribute(name)) old.removeAttribute(name);
  // The choice of the axis is the script's own, not the server's.
  const rest = [...old.childNodes].filter(node => node.nodeType !== Node.ELEMENT_NODE || !node.matches(".choice"));
  for (const node of [...newer.childNodes]) {
    const at = rest.findIndex(other => key(other) === key(node));
    if (at < 0) old.insertBefore(node, rest[0] || null);
    else {
      for (const gone of rest.splice(0, at)) gone.remove();
      update(rest.shift(), node);
    }
  }
  for (const gone of rest) gone.remove();
}

async function refresh() {
  if (!document.hidden) {
    try {
      const address = new URL(location.href);
      address.searchParams.set("part", "main");
      const answer = await fetch(address);
      if (!answer.ok) throw new Error(`answers with status ${answer.status}`);
      // Scripts of a parsed document do not run.
      const newer = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      if (!globalThis.updateFigure && newer.querySelector("figure.plot")) { location.reload(); return; }
      update(main, newer);
      updated = new Date();
      status.textContent = "";
    } catch (problem) {
      const why = problem instanceof TypeError ? "does not answer" : problem.message;
      status.textContent = `Not updated since ${updated.toLocaleTimeString()}: hmx board ${why}.`;
    }
  }
  if (main.hasAttribute("data-live")) setTimeout(refresh, EVERY);
}
setTimeout(refresh, EVERY);
})();
