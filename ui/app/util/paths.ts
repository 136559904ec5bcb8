/** Allows only paths of this site: a link must not send an operator elsewhere after the login. */
export function localPath(value: unknown): string | undefined {
  return typeof value === "string" && /^\/(?![/\\])/.test(value) && value !== "/" ? value : undefined;
}
