/** Admin keys in a link, or copied with the text around them. */

/** keyFromHash reads "#key=<base64>". A + of the base64 stays a +. */
export function keyFromHash(hash: string): string | null {
  const match = /^#key=(.+)$/.exec(hash);
  if (!match) return null;
  try {
    return cleanKey(decodeURIComponent(match[1]!));
  } catch {
    return cleanKey(match[1]!);
  }
}

export function cleanKey(text: string): string {
  return text
    .trim()
    .replace(/^(Authorization:\s*)?ApiKey\s+/i, "")
    .replace(/\s+/g, "");
}
