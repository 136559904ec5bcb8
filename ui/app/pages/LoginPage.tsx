/** Exchanges an admin key for a session. */
import { PasswordInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, useRouter } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { logIn as logInWith } from "~/api/accessKeys";
import { ApiError, messageOf } from "~/api/client";
import { keys } from "~/api/queries";
import { Callout } from "~/components/base/Callout";
import { ReasonButton } from "~/components/base/ReasonButton";
import { Logo } from "~/components/frame/Logo";
import { docsUrl } from "~/util/docs";
import { cleanKey, keyFromHash } from "~/util/settings/login";
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
    mutationFn: logInWith,
    onSuccess: (session) => {
      client.setQueryData(keys.session, session);
      router.history.replace(from ?? "/");
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
      <form
        className={classes.form}
        onSubmit={(e) => {
          e.preventDefault();
          if (cleanKey(key) !== "") logIn.mutate(cleanKey(key));
        }}
      >
        <div className={classes.brand}>
          <Logo size={32} />
          <h1 className={classes.title}>Log in to Muster</h1>
        </div>
        {fromLink && logIn.isPending ? (
          <p className={classes.text} role="status">
            Logging in with the key of the link…
          </p>
        ) : null}
        <PasswordInput
          label="Admin key"
          description={
            from
              ? "Your session has ended, or this is a new browser. You return to the page that you came from."
              : "The server printed the first one, or the path of its file, when it first started."
          }
          name="api_key"
          size="sm"
          autoComplete="current-password"
          spellCheck={false}
          autoFocus
          value={key}
          onChange={(e) => setKey(e.currentTarget.value)}
        />
        {logIn.isError ? (
          <Callout kind="error" title={wrong ? "This key is not accepted" : "Logging in failed"}>
            {messageOf(logIn.error)}
          </Callout>
        ) : null}
        <ReasonButton
          type="submit"
          size="sm"
          loading={logIn.isPending}
          reason={cleanKey(key) === "" && !logIn.isPending ? "Paste a key first." : null}
          fullWidth
        >
          Log in
        </ReasonButton>
        <p className={classes.text}>
          No key? Whoever has one creates another under Settings, or with <span className="mono">muster admin-keys create NAME</span>.{" "}
          <a className={classes.link} href={docsUrl("start")} target="_blank" rel="noreferrer">
            Documentation
          </a>
        </p>
      </form>
    </main>
  );
}
