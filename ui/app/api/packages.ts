/** Queries and changes of packages, of what hosts trust, and of publisher keys. */
import { queryOptions } from "@tanstack/react-query";
import { ApiError, call, errorFrom } from "./client";
import { keys, POLL_MS } from "./queries";

export const trustQuery = queryOptions({
  queryKey: keys.trust,
  queryFn: ({ signal }) => call("get", "/api/v1/trust", { signal }),
  refetchInterval: POLL_MS,
});

export const withdrawPackage = (file: string, why: string) => call("delete", "/api/v1/packages/{file}", { path: { file }, why });

export const publishTrust = (files: string[], why: string) => call("post", "/api/v1/trust/files", { body: { files }, why });

export const addPublisherKey = (publicKey: string, name: string, why: string) =>
  call("post", "/api/v1/publisher_keys", { body: { public_key: publicKey, name: name || undefined }, why });

export const removePublisherKey = (keyId: string, why: string) => call("delete", "/api/v1/publisher_keys/{keyId}", { path: { keyId }, why });

/** An archive and what vouches for it, each as the server's header wants it. */
export interface Push {
  file: File;
  /** The .asc and the .sha512 file of an archive of Elastic's. */
  openpgp?: File;
  digest?: File;
}

/** pushPackage uploads an archive. fetch reports no progress of an upload, so this is the older interface. */
export async function pushPackage(push: Push, onProgress: (share: number) => void, signal: AbortSignal): Promise<void> {
  const headers: Record<string, string> = { "kbn-xsrf": "muster-ui", "Content-Type": "application/octet-stream" };
  if (push.openpgp) headers["Muster-Openpgp-Signature"] = await base64(push.openpgp);
  if (push.digest) headers["Muster-Sha512"] = (await push.digest.text()).trim().split(/\s+/)[0] ?? "";
  await new Promise<void>((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `/api/v1/packages/${encodeURIComponent(push.file.name)}`);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (e) => onProgress(e.lengthComputable && e.total > 0 ? e.loaded / e.total : 0);
    request.onload = () => (request.status < 300 ? resolve() : reject(errorFrom(request.status, request.responseText)));
    request.onerror = () => reject(new ApiError(0, "unreachable", "The connection was lost during the upload. Pushing the same archive again is safe."));
    request.onabort = () => reject(new ApiError(0, "aborted", "The upload was cancelled."));
    signal.addEventListener("abort", () => request.abort());
    request.send(push.file);
  });
}

/** base64 returns the bytes of a small file. */
export async function base64(file: Blob): Promise<string> {
  let text = "";
  for (const byte of new Uint8Array(await file.arrayBuffer())) text += String.fromCharCode(byte);
  return btoa(text);
}
