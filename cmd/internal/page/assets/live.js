"use strict";
// Takes in what the server shows of this page as it changes. The server escapes it, and its policy lets nothing of it run.
(() => {
  const box = document.getElementById("live"), said = document.getElementById("live-said"), on = document.getElementById("live-on");
  let source;
  // A hint where a box is wider than the screen: not all browsers show that it scrolls.
  const hint = () => box.querySelectorAll(".scroll").forEach((s) => {
    s.classList.toggle("wide", s.scrollWidth > s.clientWidth + 1);
  });
  addEventListener("resize", hint);
  box.addEventListener("toggle", hint, true);
  document.documentElement.classList.add("js");
  // Copies the command before a button. Browsers without a clipboard, as at an address without TLS, select it.
  box.addEventListener("click", (e) => {
    const button = e.target.closest(".copy");
    if (!button) return;
    const code = button.previousElementSibling;
    getSelection().selectAllChildren(code);
    navigator.clipboard?.writeText(code.textContent).then(() => { said.textContent = "copied"; }, () => {});
  });
  const follow = () => {
    source = new EventSource(location.href);
    source.onopen = () => { said.textContent = "live"; };
    source.onmessage = (e) => {
      const at = document.activeElement;
      if (box.contains(at) && at.closest("form")) return; // the user is choosing
      const name = at.hasAttribute("href") ? "href" : "aria-label", link = box.contains(at) ? at.getAttribute(name) : null;
      const fold = [...box.querySelectorAll("summary")].indexOf(at);
      const opened = [...box.querySelectorAll("details")].map((d) => d.open);
      const moved = [...box.querySelectorAll(".scroll")].map((s) => s.scrollLeft);
      box.innerHTML = e.data;
      box.querySelectorAll("details").forEach((d, i) => { d.open = opened[i]; });
      hint();
      box.querySelectorAll(".scroll").forEach((s, i) => { s.scrollLeft = moved[i]; });
      if (link) box.querySelector("[" + name + '="' + CSS.escape(link) + '"]')?.focus({ preventScroll: true });
      if (fold >= 0) box.querySelectorAll("summary")[fold]?.focus({ preventScroll: true });
    };
    source.onerror = () => { said.textContent = source.readyState === EventSource.CLOSED ? "not live any more: load the page again" : "not live: trying again"; };
  };
  on.onchange = () => {
    if (on.checked) return follow();
    source.close();
    said.textContent = "stopped";
  };
  hint();
  follow();
})();
