/** A fetch whose paths, parameters, bodies and answers are checked against the OpenAPI document. */
import type { paths } from "./__generated__/admin";

type Method = "get" | "post" | "put" | "delete";
type PathsWith<M extends Method> = {
  [P in keyof paths]: paths[P][M] extends { responses: unknown } ? P : never;
}[keyof paths];
type Operation<P extends keyof paths, M extends Method> = paths[P][M];
type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : never;
type Answer<Op> = Op extends { responses: { 200: infer R } } ? Json<R> : Op extends { responses: { 201: infer R } } ? Json<R> : never;
type Body<Op> = Op extends { requestBody?: infer B } ? Json<NonNullable<B>> : never;
type Query<Op> = Op extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never;

interface Input<Op> {
  /** Values for the {names} in the path. */
  path?: Record<string, string>;
  query?: Query<Op>;
  body?: Body<Op>;
  /** For the audit trail. Every change takes it in this way, also those whose body has none. */
  why?: string;
  signal?: AbortSignal;
}

/** How long a call may take before the page reports that the server does not answer. */
export const CALL_TIMEOUT_MS = 30_000;

/** A refusal of the server, or no answer at all (statusCode 0). */
export class ApiError extends Error {
  constructor(
    readonly statusCode: number,
    readonly code: string,
    message: string,
    /** The whole response, which may have more than the message. */
    readonly body?: unknown,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

export function call<M extends Method, P extends PathsWith<M>>(method: M, path: P, input: Input<Operation<P, M>> = {}): Promise<Answer<Operation<P, M>>> {
  const url = fillPath(path, input.path ?? {}) + queryString(input.why ? { ...(input.query ?? {}), why: input.why } : input.query);
  return send(method.toUpperCase(), url, input.body, input.signal) as Promise<Answer<Operation<P, M>>>;
}

async function send(method: string, url: string, body: unknown, signal?: AbortSignal): Promise<unknown> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (method !== "GET") headers["kbn-xsrf"] = "muster-ui";
  if (body !== undefined) headers["Content-Type"] = "application/json";

  const deadline = AbortSignal.timeout(CALL_TIMEOUT_MS);
  let response: Response;
  try {
    response = await fetch(url, {
      method,
      headers,
      credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
    });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new ApiError(
      0,
      "unreachable",
      deadline.aborted
        ? `The server did not answer within ${CALL_TIMEOUT_MS / 1000} s.`
        : "The server cannot be reached. Check that it runs and that this browser trusts its certificate.",
    );
  }
  const text = await response.text();
  if (!response.ok) throw errorFrom(response.status, text);
  return text === "" ? {} : JSON.parse(text);
}

/** errorFrom parses the server's error body. Without one it uses the status. */
export function errorFrom(status: number, text: string): ApiError {
  try {
    const body = JSON.parse(text) as { error?: unknown; message?: unknown };
    if (typeof body.message === "string" && body.message !== "") {
      return new ApiError(status, typeof body.error === "string" ? body.error : "error", body.message, body);
    }
  } catch {
    // Not JSON: the answer is from a proxy.
  }
  return new ApiError(status, "error", `The server answered ${status} without saying why.`);
}

export function fillPath(path: string, values: Record<string, string>): string {
  return path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined || value === "") throw new Error(`no value for {${name}} in ${path}`);
    return encodeURIComponent(value);
  });
}

function queryString(query: unknown): string {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries((query ?? {}) as Record<string, unknown>)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) out.append(name, String(one));
    }
  }
  const text = out.toString();
  return text === "" ? "" : `?${text}`;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
