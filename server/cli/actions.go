package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/adminapi"
)

func (a *app) newActions() *cobra.Command {
	cmd := &cobra.Command{Use: "actions", Short: "See what became of actions, cancel them"}
	var limit int
	list := &cobra.Command{
		Use:   "list",
		Short: "List actions, newest first",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.ActionStatusList](cmd.Context(), a, http.MethodGet, fmt.Sprintf("/api/fleet/agents/action_status?perPage=%d", limit), nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "ACTION\tTYPE\tSTATUS\tVERSION\tDONE\tFAILED\tAGENTS\tCREATED\tBY", func(add func(...any)) {
					for _, s := range got.Items {
						add(s.ActionId, actionType(s), s.Status, deref(s.Version), s.NbAgentsAck, s.NbAgentsFailed, s.NbAgentsActioned, s.CreationTime.Local().Format(time.DateTime), deref(s.CreatedBy))
					}
				})
				for _, s := range got.Items {
					for _, e := range s.LatestErrors {
						fmt.Fprintf(w, "%s  %s: %s\n", s.ActionId, firstOf(deref(e.Hostname), e.AgentId), e.Error)
					}
				}
			})
		},
	}
	list.Flags().IntVar(&limit, "limit", 20, "how many")
	cancel := &cobra.Command{
		Use:   "cancel ACTION",
		Short: "Cancel an upgrade that is not in place yet",
		Args:  oneArg("one action id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.CancelResponse](cmd.Context(), a, http.MethodPost, "/api/fleet/agents/actions/"+url.PathEscape(args[0])+"/cancel", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintln(w, "cancelled") })
		},
	}
	cmd.AddCommand(list, cancel)
	return cmd
}

func (a *app) newKeys() *cobra.Command {
	cmd := &cobra.Command{Use: "keys", Short: "Enrollment keys: list, create, revoke"}
	list := &cobra.Command{
		Use:   "list",
		Short: "List enrollment keys",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.EnrollmentKeyList](cmd.Context(), a, http.MethodGet, "/api/fleet/enrollment_api_keys?perPage=1000", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "ID\tNAME\tPOLICY\tACTIVE\tCREATED\tEXPIRES", func(add func(...any)) {
					for _, k := range got.Items {
						expires := "never"
						if k.ExpireAt != nil {
							expires = k.ExpireAt.Local().Format(time.DateTime)
						}
						add(k.Id, k.Name, k.PolicyId, k.Active, k.CreatedAt.Local().Format(time.DateTime), expires)
					}
				})
			})
		},
	}
	var name, policyID, expiration string
	create := &cobra.Command{
		Use:   "create",
		Short: "Make an enrollment key; the token is shown this once",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.EnrollmentKeyCreated](cmd.Context(), a, http.MethodPost, "/api/fleet/enrollment_api_keys",
				adminapi.CreateEnrollmentKeyRequest{Name: &name, PolicyId: policyID, Expiration: &expiration})
			if err != nil {
				return err
			}
			info, err := call[adminapi.Server](cmd.Context(), a, http.MethodGet, "/api/v1/server", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				command := enrollCommand(info.AgentUrl, deref(got.Item.ApiKey), info.CaPin, trustFlags(info.TrustRoot, info.PublisherKeys))
				fmt.Fprintf(w, "%s\n\nInstall and enrol a host, as root, in the folder of an unpacked package:\n  ./data/*/%s\n", deref(got.Item.ApiKey), command)
			})
		},
	}
	create.Flags().StringVar(&name, "name", "", "name of the key")
	create.Flags().StringVar(&policyID, "policy", "default", "policy that hosts enrol into")
	create.Flags().StringVar(&expiration, "expires", "", "how long it enrols, such as 24h (default: for ever)")
	revoke := &cobra.Command{
		Use:   "revoke KEY",
		Short: "Revoke an enrollment key; agents it enrolled stay",
		Args:  oneArg("one key id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := call[adminapi.ActionWord](cmd.Context(), a, http.MethodDelete, "/api/fleet/enrollment_api_keys/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintln(w, "revoked") })
		},
	}
	cmd.AddCommand(list, create, revoke)
	return cmd
}

func (a *app) newPolicies() *cobra.Command {
	cmd := &cobra.Command{Use: "policies", Short: "Policies: list, create"}
	list := &cobra.Command{
		Use:   "list",
		Short: "List policies",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.PolicyList](cmd.Context(), a, http.MethodGet, "/api/fleet/agent_policies?perPage=1000", nil)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "ID\tNAME\tAGENTS\tREVISION", func(add func(...any)) {
					for _, p := range got.Items {
						add(p.Id, p.Name, p.Agents, p.Revision)
					}
				})
			})
		},
	}
	req := adminapi.CreatePolicyRequest{Namespace: "default"}
	var id string
	create := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a policy",
		Args:  oneArg("the policy's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Name = args[0]
			if id != "" {
				req.Id = &id
			}
			got, err := call[adminapi.PolicyItem](cmd.Context(), a, http.MethodPost, "/api/fleet/agent_policies", req)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) { fmt.Fprintln(w, got.Item.Id) })
		},
	}
	create.Flags().StringVar(&id, "id", "", "id to use (default: chosen)")
	cmd.AddCommand(list, create)
	return cmd
}

func (a *app) newStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "How many agents are in each status",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := call[adminapi.AgentStatusResponse](cmd.Context(), a, http.MethodGet, "/api/fleet/agent_status", nil)
			if err != nil {
				return err
			}
			r := got.Results
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				table(w, "STATUS\tAGENTS", func(add func(...any)) {
					add("online", r.Online)
					add("error", r.Error)
					add("updating", r.Updating)
					add("offline", r.Offline)
					add("inactive", r.Inactive)
					add("unenrolled", r.Unenrolled)
					add("all", r.All)
				})
			})
		},
	}
}

func (a *app) newEvents() *cobra.Command {
	var after int64
	cmd := &cobra.Command{
		Use:     "events",
		Short:   "Follow what happens, one JSON event a line",
		Example: "  muster events | jq -r '[.at, .type, .subject] | @tsv'",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.target.resolve()
			if err != nil {
				return err
			}
			path := "/api/v1/events"
			if cmd.Flags().Changed("after") {
				path += fmt.Sprintf("?after=%d", after)
			}
			resp, err := t.do(cmd.Context(), http.MethodGet, path, http.Header{}, nil, 0)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			last, err := copyEvents(cmd.OutOrStdout(), resp.Body)
			switch {
			case cmd.Context().Err() != nil:
				return nil // Ctrl-C is how one leaves
			case errors.Is(err, errReset):
				return fmt.Errorf("%w: leave --after out to begin with what happens next", err)
			case err == nil:
				err = errors.New("the server ended the stream")
			}
			if last != "" {
				return fmt.Errorf("%w: go on with `muster events --after %s`", err, last)
			}
			return err
		},
	}
	cmd.Flags().Int64Var(&after, "after", 0, "begin behind the event with this sequence number")
	return cmd
}

var errReset = errors.New("events after that one are no longer kept")

// copyEvents writes the data of each message on a line of its own, until the
// stream ends, and returns the id of the last.
func copyEvents(w io.Writer, stream io.Reader) (last string, err error) {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxEventLine)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case field == "event" && value == "reset":
			return last, errReset
		case field == "id":
			last = value
		case field == "data":
			if _, err := fmt.Fprintln(w, value); err != nil {
				return last, err
			}
		}
	}
	return last, lines.Err()
}

// maxEventLine bounds one event: an agent with a thousand components has some
// 200 KB.
const maxEventLine = 1 << 20

func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // types of ours
	}
	return b
}

// actionType tells a rollback from an upgrade, which it is to the agents.
func actionType(s adminapi.ActionStatus) string {
	if deref(s.Rollback) {
		return "ROLLBACK"
	}
	return s.Type
}
