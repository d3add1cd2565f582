// Copy and download, and the question before captions go that were neither.

import { asSrt, asText, asVtt } from "./formats.js";

const RENDER = { txt: asText, srt: asSrt, vtt: asVtt };
const TYPE = { txt: "text/plain", srt: "application/x-subrip", vtt: "text/vtt" };
const SAID_MS = 2000;

// `finals()` gives what there is now.
export function offerTools(finals) {
  const copy = document.getElementById("copy");
  const buttons = [copy, ...document.querySelectorAll("[data-download]")];
  let saved = 0; // finals that were copied or downloaded

  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(asText(finals()));
      saved = finals().length;
      said(copy, "Copied");
    } catch {
      said(copy, "Not allowed: download it");
    }
  });
  for (const button of buttons.slice(1)) {
    button.addEventListener("click", () => {
      download(button.dataset.download, finals());
      saved = finals().length;
    });
  }
  return {
    refresh() {
      for (const button of buttons) button.disabled = !finals().length;
    },
    forget() {
      saved = 0;
      this.refresh();
    },
    async mayGo() {
      return finals().length === saved || (await asked(document.getElementById("anew"))) === "yes";
    },
  };
}

function download(form, finals) {
  const url = URL.createObjectURL(new Blob([RENDER[form](finals)], { type: `${TYPE[form]};charset=utf-8` }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `captions.${form}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), SAID_MS);
}

function said(button, words) {
  const before = (button.dataset.name ??= button.textContent);
  button.textContent = words;
  setTimeout(() => (button.textContent = before), SAID_MS);
}

function asked(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  });
}
