package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *app) newWebhooks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhooks",
		Short: "Tell other systems of rollouts: list, add, remove, test, enable, disable, dead, redeliver",
		Long: `A webhook is an address that is sent the events of rollouts, signed. What cannot
be delivered is tried again for a while, and then kept as a dead letter.`,
	}
	cmd.AddCommand(a.newWebhooksList(), a.newWebhooksAdd(), a.newWebhooksDead(),
		a.newWebhooksVerb("remove", "Remove a webhook", "removed", http.MethodDelete, ""),
		a.newWebhooksVerb("test", "Send a ping now", "the receiver accepted the ping", http.MethodPost, "/test"),
		a.newWebhooksVerb("enable", "Send to a webhook again", "enabled", http.MethodPost, "/enable"),
		a.newWebhooksVerb("disable", "Send nothing to a webhook until it is enabled", "disabled", http.MethodPost, "/disable"),
		a.newWebhooksRedeliver())
	return cmd
}

func (a *app) newWebhooksList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List webhooks",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.WebhookList](cmd.Context(), a, http.MethodGet, "/api/v1/webhooks", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "ID\tNAME\tURL\tEVENTS\tSTATE\tBY", func(add func(...any)) {
					for _, h := range got.Items {
						state := "enabled"
						if deref(h.Disabled) {
							state = "disabled"
						}
						add(h.Id, h.Name, h.Url, firstOf(strings.Join(deref(h.Events), ", "), "all rollout events"), state, h.CreatedBy)
					}
				})
			})
		},
	}
}

func (a *app) newWebhooksAdd() *cobra.Command {
	var (
		events     []string
		secretFile string
	)
	cmd := &cobra.Command{
		Use:     "add NAME URL",
		Short:   "Add a webhook; its secret is shown this once",
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
			got, err := call[adminapi.WebhookItem](cmd.Context(), a, http.MethodPost, "/api/v1/webhooks", req)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				id := got.Item.Id
				fmt.Fprintf(w, "%s\nIts secret, with which the receiver checks what it is sent:\n  %s\nTry it with `muster webhooks test %s`.\n", id, deref(got.Item.Secret), id)
			})
		},
	}
	cmd.Flags().StringArrayVar(&events, "event", nil, "only events of this type, such as rollout.paused (default: all rollout events but progress)")
	cmd.Flags().StringVar(&secretFile, "secret-file", "", "file that holds the secret (default: one is made)")
	return cmd
}

// newWebhooksVerb makes a command that names one webhook and answers in a word.
func (a *app) newWebhooksVerb(verb, short, done, method, suffix string) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " WEBHOOK",
		Short: short,
		Args:  oneArg("one webhook id: `muster webhooks list` shows them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[map[string]any](cmd.Context(), a, method, "/api/v1/webhooks/"+url.PathEscape(args[0])+suffix, nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintln(w, done) })
		},
	}
}

func (a *app) newWebhooksDead() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List what could not be delivered, newest first",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			items, total, err := everyPage(limit, func(page, size int) ([]adminapi.DeadLetter, int, error) {
				got, err := call[adminapi.DeadLetterList](cmd.Context(), a, http.MethodGet, fmt.Sprintf("/api/v1/dead_letters?page=%d&perPage=%d", page, size), nil)
				return got.Items, got.Total, err
			})
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), adminapi.DeadLetterList{Items: items, Total: total, Page: 1, PerPage: len(items)}, func(w io.Writer) {
				if len(items) == 0 {
					fmt.Fprintln(w, "none")
					return
				}
				table(w, "ID\tWEBHOOK\tTYPE\tTRIES\tAT\tERROR", func(add func(...any)) {
					for _, d := range items {
						add(d.Id, d.WebhookId, d.Type, d.Attempts, d.At.Local().Format(time.DateTime), d.Error)
					}
				})
				fmt.Fprintln(w, "Try one again with `muster webhooks redeliver ID`.")
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "how many")
	return cmd
}

func (a *app) newWebhooksRedeliver() *cobra.Command {
	return &cobra.Command{
		Use:   "redeliver LETTER…",
		Short: "Try once more to deliver dead letters",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("want one dead letter id or more: `muster webhooks dead` shows them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range args {
				if _, err := call[adminapi.Empty](cmd.Context(), a, http.MethodPost, "/api/v1/dead_letters/"+url.PathEscape(id)+"/redeliver", nil); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return a.show(cmd.OutOrStdout(), map[string][]string{"redelivered": args}, func(w io.Writer) { fmt.Fprintln(w, "delivered") })
		},
	}
}
