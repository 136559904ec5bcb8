import "@mantine/core/styles.layer.css";
import "./app.css";
import { MantineProvider } from "@mantine/core";
import { MutationCache, QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { setNonce } from "get-nonce";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/client";
import { makeRouter } from "./router";
import { theme } from "./theme";

/** A list read within this time is not read again when a page opens; events keep it fresh. */
const FRESH_MS = 10_000;
/** How often a call without an answer is retried; refusals are not. */
const TRIES = 2;

/** When any call finds that the session has ended, the login page opens. */
function onError(error: unknown) {
  if (!(error instanceof ApiError) || error.statusCode !== 401) return;
  const here = router.state.location;
  if (here.pathname === "/login") return;
  client.clear();
  void router.navigate({ to: "/login", search: { from: here.href } });
}

const client = new QueryClient({
  queryCache: new QueryCache({ onError }),
  mutationCache: new MutationCache({ onError }),
  defaultOptions: {
    queries: {
      staleTime: FRESH_MS,
      refetchOnWindowFocus: true,
      retry: (count, error) => count < TRIES && (!(error instanceof ApiError) || error.statusCode === 0 || error.statusCode >= 500),
    },
  },
});

const router = makeRouter(client);

function nonce(): string {
  return document.querySelector<HTMLMetaElement>('meta[property="csp-nonce"]')?.nonce ?? "";
}

// Dialogs lock the scrolling of the page with a style element of another
// library, which gets its nonce here.
setNonce(nonce());

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <MantineProvider theme={theme} defaultColorScheme="auto" getStyleNonce={nonce}>
      <QueryClientProvider client={client}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
