/** Only a path of this site: a link must not be able to send an operator elsewhere after the login. */
export function localPath(value: unknown): string | undefined {
  return typeof value === "string" && /^\/(?![/\\])/.test(value) && value !== "/" ? value : undefined;
}
