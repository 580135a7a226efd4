(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");

  // Native titles of marks become one styled tooltip that follows the pointer and the keyboard.
  var tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("role", "tooltip");
  document.body.appendChild(tip);
  document.querySelectorAll("svg title").forEach(function (title) {
    title.parentNode.setAttribute("data-tip", title.textContent);
    title.remove();
  });
  document.addEventListener("mousemove", function (event) {
    var mark = event.target.closest ? event.target.closest("[data-tip]") : null;
    if (!mark) {
      tip.className = "";
      return;
    }
    tip.textContent = mark.getAttribute("data-tip");
    tip.className = "on";
    var box = tip.getBoundingClientRect();
    var x = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
    var y = event.clientY + 18;
    if (y + box.height > window.innerHeight - 8) y = event.clientY - box.height - 12;
    tip.style.left = Math.max(8, x) + "px";
    tip.style.top = Math.max(8, y) + "px";
  });
  document.addEventListener("scroll", function () { tip.className = ""; }, { passive: true });

  var button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", function () {
    var now = root.getAttribute("data-theme") ||
      (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.setAttribute("data-theme", now === "dark" ? "light" : "dark");
  });

  // Paper shows everything: folded parts open before printing and close again after it.
  var opened = [];
  window.addEventListener("beforeprint", function () {
    opened = Array.prototype.slice.call(document.querySelectorAll("details:not([open])"));
    opened.forEach(function (part) { part.open = true; });
  });
  window.addEventListener("afterprint", function () {
    opened.forEach(function (part) { part.open = false; });
  });
})();
