/** Requests for diagnostics in words. */
import type { Upload } from "~/api/types";

const words: Record<Upload["status"], string> = {
  IN_PROGRESS: "The host is sending them",
  AWAITING_UPLOAD: "Waits for the host",
  READY: "Ready",
  UPLOAD_ERROR: "The host could not send them",
  EXPIRED: "The request has expired",
  FAILED: "The host could not collect them",
};

export const uploadText = (u: Pick<Upload, "status">): string => words[u.status] ?? u.status;
