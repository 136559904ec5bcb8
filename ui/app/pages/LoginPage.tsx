import { Paper, PasswordInput, Stack, Text, Title } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useRouter } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { ApiError, call, messageOf } from "~/api/client";
import { keys } from "~/api/queries";
import { Callout } from "~/components/Callout";
import { Logo } from "~/components/Logo";
import { ReasonButton } from "~/components/ReasonButton";
import { cleanKey, keyFromHash } from "~/util/login";
import classes from "./LoginPage.module.css";

const route = getRouteApi("/login");

export function LoginPage() {
  const { from } = route.useSearch();
  const router = useRouter();
  const client = useQueryClient();
  const [key, setKey] = useState("");
  // Read once, before the fragment is removed from the address.
  const [fromLink] = useState(() => keyFromHash(window.location.hash));

  const logIn = useMutation({
    mutationFn: (apiKey: string) => call("post", "/api/v1/session", { body: { api_key: apiKey } }),
    onSuccess: (session) => {
      client.setQueryData(keys.session, session);
      router.history.replace(from ?? "/agents");
    },
  });

  const sent = useRef(false);
  useEffect(() => {
    document.title = "Log in · Muster";
    if (!fromLink || sent.current) return;
    sent.current = true;
    // The key must not stay in the history or in a copied address.
    window.history.replaceState(window.history.state, "", window.location.pathname + window.location.search);
    logIn.mutate(fromLink);
  }, [fromLink, logIn]);

  const wrong = logIn.error instanceof ApiError && logIn.error.statusCode === 401;
  return (
    <main className={classes.page}>
      <Paper className={classes.card} withBorder shadow="sm" radius="lg">
        <form
          onSubmit={(e) => {
            e.preventDefault();
            if (cleanKey(key) !== "") logIn.mutate(cleanKey(key));
          }}
        >
          <Stack>
            <div className={classes.brand}><Logo size={34} /><Title order={1}>Muster</Title></div>
            {fromLink && logIn.isPending ? <Text size="sm" role="status">Logging in with the key of the link…</Text> : (
              <Text size="sm" c="dimmed">Paste an admin API key. The server printed the first one, or the path of its file, at its first start.</Text>
            )}
            <PasswordInput
              label="Admin API key"
              name="api_key"
              autoComplete="current-password"
              spellCheck={false}
              autoFocus
              value={key}
              onChange={(e) => setKey(e.currentTarget.value)}
            />
            {logIn.isError ? (
              <Callout kind="error" title={wrong ? "This key is not accepted" : "Logging in failed"}>{messageOf(logIn.error)}</Callout>
            ) : null}
            <ReasonButton type="submit" loading={logIn.isPending} reason={cleanKey(key) === "" && !logIn.isPending ? "Paste a key first." : null} fullWidth>Log in</ReasonButton>
          </Stack>
        </form>
      </Paper>
    </main>
  );
}
