// Choosing a file, or dropping one anywhere on the page.

const at = (id) => document.getElementById(id);
const hasFile = (event) => event.dataTransfer?.types.includes("Files");

export function onFile(take) {
  const input = at("file");
  at("choose").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    if (input.files[0]) take(input.files[0]);
    input.value = ""; // the same file may be chosen again
  });
  addEventListener("dragover", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    at("drop").hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) at("drop").hidden = true;
  });
  addEventListener("drop", (event) => {
    at("drop").hidden = true;
    if (!hasFile(event)) return;
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  });
}
