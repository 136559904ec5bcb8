package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newWebhooks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhooks",
		Short: "Manage webhooks, which send events to other systems",
		Long: `A webhook is a URL to which the server sends signed events of rollouts. The server retries
failed deliveries for a while, and then stores them as dead letters.

Receivers verify the signatures with a library for Standard Webhooks (https://www.standardwebhooks.com).
Webhooks reach addresses inside the network only if the server's configuration names them under
webhooks.allow.

WEBHOOK` + findLong,
	}
	cmd.AddCommand(a.newWebhooksList(), a.newWebhooksAdd(), a.newWebhooksDead(),
		a.newWebhooksVerb("remove", "Remove a webhook", "removed", adminapi.DeleteWebhook.Call),
		a.newWebhooksVerb("test", "Send a ping to a webhook", "the receiver accepted the ping", adminapi.TestWebhook.Call),
		a.newWebhooksVerb("enable", "Enable a webhook", "enabled", adminapi.EnableWebhook.Call),
		a.newWebhooksVerb("disable", "Disable a webhook until it is enabled again", "disabled", adminapi.DisableWebhook.Call),
		a.newWebhooksRedeliver())
	return cmd
}

func (a *client) newWebhooksList() *cobra.Command {
	return showing(a, &cobra.Command{Use: "list", Short: "List webhooks"}, adminapi.ListWebhooks, func(w io.Writer, got adminapi.WebhookList) {
		rows[adminapi.Webhook]{heading: "ID\tNAME\tURL\tEVENTS\tSTATE\tBY", row: func(h adminapi.Webhook, _ time.Time) []any {
			state := "enabled"
			if deref(h.Disabled) {
				state = "disabled"
			}
			return []any{h.Id, h.Name, h.Url, firstOf(strings.Join(deref(h.Events), ", "), "all rollout events"), state, h.CreatedBy}
		}}.print(w, got.Items)
	})
}

func (a *client) newWebhooksAdd() *cobra.Command {
	var (
		events     []string
		secretFile string
	)
	cmd := &cobra.Command{
		Use:     "add NAME URL",
		Short:   "Add a webhook and show its secret, this once",
		Example: "  muster webhooks add chat https://hooks.example.com/muster --event rollout.paused --event incident.changed",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("want a name and a URL (see `%s --help`)", c.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			req := adminapi.CreateWebhookRequest{Name: args[0], Url: args[1]}
			if len(events) > 0 {
				req.Events = &events
			}
			if secretFile != "" {
				b, err := os.ReadFile(secretFile)
				if err != nil {
					return err
				}
				secret := strings.TrimSpace(string(b))
				req.Secret = &secret
			}
			secret, err := openSecret(cmd.OutOrStdout(), "webhook-secret")
			if err != nil {
				return err
			}
			defer secret.discard()
			got, err := call(cmd.Context(), a, adminapi.CreateWebhook, req)
			if err != nil {
				return err
			}
			out := struct {
				adminapi.WebhookItem
				File string `json:"secret_file,omitempty"`
			}{WebhookItem: got}
			if out.Item.Secret, out.File, err = secret.keep(got.Item.Secret); err != nil {
				return fmt.Errorf("webhook %s: %w", got.Item.Id, err)
			}
			return a.show(cmd.OutOrStdout(), out, func(w io.Writer) {
				id := got.Item.Id
				fmt.Fprintf(w, "%s\nIts secret, with which the receiver verifies events:\n  %s\nTest it with `muster webhooks test %s`.\n", id, shownSecret(out.Item.Secret, out.File), id)
			})
		},
	}
	cmd.Flags().StringArrayVar(&events, "event", nil, "send only events of this type, such as rollout.paused (default: all rollout events except progress)")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "file with the secret (default: generated)")
	return cmd
}

// newWebhooksVerb returns a subcommand on one webhook that prints done.
func (a *client) newWebhooksVerb(verb, short, done string, op *adminapi.Call) *cobra.Command {
	return showing(a, &cobra.Command{
		Use:   verb + " WEBHOOK",
		Short: short,
		Args:  oneArg("one webhook id: `muster webhooks list` shows them"),
	}, adminapi.Operation[adminapi.None, map[string]any]{Call: op}, saying[map[string]any](done))
}

func (a *client) newWebhooksDead() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List the dead letters, newest first",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := everyPage[adminapi.DeadLetter](cmd.Context(), a, adminapi.ListDeadLetters, limit, nil)
			if err != nil {
				return err
			}
			return showPaged(a, cmd.OutOrStdout(), got, rows[adminapi.DeadLetter]{
				heading: "ID\tWEBHOOK\tTYPE\tTRIES\tAT\tERROR", empty: "none",
				row: func(d adminapi.DeadLetter, _ time.Time) []any {
					return []any{d.ID, d.WebhookID, d.Type, d.Attempts, d.At.Local().Format(time.DateTime), d.Error}
				},
				below: func(w io.Writer, _ []adminapi.DeadLetter) {
					fmt.Fprintln(w, "Retry one with `muster webhooks redeliver ID`.")
				},
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of dead letters to list")
	return cmd
}

func (a *client) newWebhooksRedeliver() *cobra.Command {
	return &cobra.Command{
		Use:   "redeliver LETTER…",
		Short: "Deliver dead letters again",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("want one dead letter id or more: `muster webhooks dead` shows them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range args {
				if _, err := ask(cmd.Context(), a, adminapi.Redeliver, nil, id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return a.show(cmd.OutOrStdout(), map[string][]string{"redelivered": args}, func(w io.Writer) { fmt.Fprintln(w, "delivered") })
		},
	}
}
