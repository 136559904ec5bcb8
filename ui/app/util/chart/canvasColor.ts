/** Colours of the theme for a canvas, which understands neither variables nor light-dark(). */

/** colorsOf returns the colours that variables of app.css have within an element, as rgb(). */
export function colorsOf<Name extends string>(within: Element, names: readonly Name[]): Record<Name, string> {
  const probe = document.createElement("span");
  probe.hidden = true;
  within.append(probe);
  const colors = Object.fromEntries(
    names.map((name) => {
      probe.style.color = `var(${name})`;
      return [name, getComputedStyle(probe).color];
    }),
  );
  probe.remove();
  return colors as Record<Name, string>;
}
