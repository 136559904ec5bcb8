package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newWebhooks() *cobra.Command {
	return noun(&cobra.Command{
		Use:   "webhooks",
		Short: "Manage webhooks, which send events to other systems",
		Long: `A webhook is a URL to which the server sends signed events of rollouts. The server retries
failed deliveries for a while, and then stores them as dead letters.

Receivers verify the signatures with a library for Standard Webhooks (https://www.standardwebhooks.com).
Webhooks reach addresses inside the network only if the server's configuration names them under
webhooks.allow.

WEBHOOK` + findLong,
	},
		showing(a, &cobra.Command{Use: "list", Short: "List webhooks"}, adminapi.ListWebhooks, func(w io.Writer, got adminapi.WebhookList) {
			tableOf(w, "ID\tNAME\tURL\tEVENTS\tSTATE\tBY", got.Items, func(h adminapi.Webhook) []any {
				state := "enabled"
				set(deref(h.Disabled), &state, "disabled")
				return []any{h.Id, h.Name, h.Url, cmp.Or(strings.Join(deref(h.Events), ", "), "all rollout events"), state, h.CreatedBy}
			})
		}),
		a.newWebhooksAdd(),
		listing(a, &cobra.Command{Use: "dead", Short: "List the dead letters, newest first"}, adminapi.ListDeadLetters, nil, 100, "dead letters", rows[adminapi.DeadLetter]{
			heading: "ID\tWEBHOOK\tTYPE\tTRIES\tAT\tERROR", empty: "none",
			row: func(d adminapi.DeadLetter, _ time.Time) []any {
				return []any{d.ID, d.WebhookID, d.Type, d.Attempts, atTime(d.At), d.Error}
			},
			below: func(w io.Writer, _ []adminapi.DeadLetter) {
				fmt.Fprintln(w, "Retry one with `muster webhooks redeliver ID`.")
			},
		}),
		a.newWebhooksVerb("remove", "Remove a webhook", "removed", adminapi.DeleteWebhook.Call),
		a.newWebhooksVerb("test", "Send a ping to a webhook", "the receiver accepted the ping", adminapi.TestWebhook.Call),
		a.newWebhooksVerb("enable", "Enable a webhook", "enabled", adminapi.EnableWebhook.Call),
		a.newWebhooksVerb("disable", "Disable a webhook until it is enabled again", "disabled", adminapi.DisableWebhook.Call),
		running(a, &cobra.Command{
			Use:   "redeliver LETTER…",
			Short: "Deliver dead letters again",
			Args:  someArgs("want one dead letter id or more: `muster webhooks dead` shows them"),
		}, func(cmd *cobra.Command, args []string) (map[string][]string, error) {
			for _, id := range args {
				if _, err := ask(cmd.Context(), a, adminapi.Redeliver, nil, id); err != nil {
					return nil, fmt.Errorf("%s: %w", id, err)
				}
			}
			return map[string][]string{"redelivered": args}, nil
		}, saying[map[string][]string]("delivered")))
}

func (a *client) newWebhooksAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "add NAME URL",
		Short:   "Add a webhook and show its secret, this once",
		Example: "  muster webhooks add chat https://hooks.example.com/muster --event rollout.paused --event incident.changed",
		Args:    twoArgs("a name and a URL"),
	}
	events := cmd.Flags().StringArray("event", nil, "send only events of this type, such as rollout.paused (default: all rollout events except progress)")
	secretFile := cmd.Flags().String("secret-file", "", "file with the secret (default: generated)")
	return running(a, cmd, func(cmd *cobra.Command, args []string) (out newWebhook, err error) {
		req := adminapi.CreateWebhookRequest{Name: args[0], Url: args[1]}
		set(len(*events) > 0, &req.Events, events)
		if *secretFile != "" {
			b, err := os.ReadFile(*secretFile)
			if err != nil {
				return out, err
			}
			req.Secret = new(strings.TrimSpace(string(b)))
		}
		out.File, err = keepSecret(cmd.OutOrStdout(), "webhook-secret", func() (string, **string, error) {
			out.WebhookItem, err = call(cmd.Context(), a, adminapi.CreateWebhook, req)
			return "webhook " + out.Item.Id, &out.Item.Secret, err
		})
		return out, err
	}, func(w io.Writer, out newWebhook) {
		id := out.Item.Id
		fmt.Fprintf(w, "%s\nIts secret, with which the receiver verifies events:\n  %s\nTest it with `muster webhooks test %s`.\n", id, shownSecret(out.Item.Secret, out.File), id)
	})
}

// newWebhook is the output about a new webhook.
type newWebhook struct {
	adminapi.WebhookItem
	File string `json:"secret_file,omitempty"`
}

// newWebhooksVerb returns a subcommand on one webhook that prints done.
func (a *client) newWebhooksVerb(verb, short, done string, op *adminapi.Call) *cobra.Command {
	return showing(a, &cobra.Command{
		Use:   verb + " WEBHOOK",
		Short: short,
		Args:  oneArg("one webhook id: `muster webhooks list` shows them"),
	}, adminapi.Operation[adminapi.None, map[string]any]{Call: op}, saying[map[string]any](done))
}
