/** Small phrases: counts, sizes, quoting. */

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString()} ${n === 1 ? one : many}`;
}

const units = ["B", "kB", "MB", "GB", "TB"];

/** size is decimal, as for disks and networks. */
export function size(bytes: number): string {
  let n = Math.max(0, bytes);
  let unit = 0;
  while (n >= 999.5 && unit < units.length - 1) {
    n /= 1000;
    unit++;
  }
  return `${n < 10 && unit > 0 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

/** shellQuote does not quote plain words, so that a command stays readable. */
export function shellQuote(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** closed ends a text with a full stop, once, and leaves its start alone: it may be the name of a host. */
export function closed(text: string): string {
  const t = text.trim();
  return t === "" || /[.!?…]$/.test(t) ? t : `${t}.`;
}

/** sentenceAbout is sentence for a text that may start with a name, which keeps its spelling. */
export function sentenceAbout(text: string, name: string): string {
  return name !== "" && text.startsWith(name) ? closed(text) : sentence(text);
}

/** sentence capitalises a text from elsewhere and ends it with a full stop, once. */
export function sentence(text: string): string {
  const t = text.trim();
  if (t === "") return "";
  return closed(t[0]!.toUpperCase() + t.slice(1));
}

/** changeText is the text of an audit entry as a sentence. A text that begins with the name of a host keeps it as it is. */
export function changeText(text: string): string {
  return /^[a-z]+[ ,:]/.test(text.trim()) ? sentence(text) : closed(text);
}
