package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

func (a *client) newAgentsStage() *cobra.Command {
	var (
		req       adminapi.StageRequest
		selection agentSelection
		component string
		source    string
		force     bool
		dryRun    bool
		wait      waitFlags
	)
	cmd := &cobra.Command{
		Use:   "stage {AGENT… | --kuery QUERY} --version VERSION",
		Short: "Install a version on hosts beside the one that runs, without switching to it",
		Long: `Install a version on hosts beside the one that runs, without switching to it.

Hosts fetch, verify and unpack the version at their leisure, and nothing is stopped. A
later upgrade to it takes seconds, since it downloads nothing. Which hosts have a version
is known to queries: 'staged_versions: 1.1.0', or 'staged_versions: "web 2.4.0"' of a
component. How many versions a host keeps is set by upgrade.keep in its agent.yml.

--dry-run shows what would happen to each host and changes nothing. --wait waits until all
hosts have staged the version, and exits with 0 only if they have.`,
		Example: `  muster agents stage --kuery 'tags: web' --version 1.1.0 --dry-run
  muster agents stage web-01 web-02 --component web --version 2.4.0 --wait`,
		Args:              selection.validate,
		ValidArgsFunction: completing(a.agentNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Version == "" {
				return &usageError{errors.New("--version is missing: `muster package list` shows what is published")}
			}
			req.Component, req.SourceUri, req.Force = given(component), given(source), given(force)
			req.IncludeInactive = selection.includeInactive()
			what := fleet.What(component, req.Version)
			o := agentOrder[adminapi.UpgradePreview, adminapi.BulkActionResponse]{
				selection: &selection, dryRun: dryRun, what: "staged with " + what, print: printStagePreview, count: countUpgrades, follow: seeActions,
				preview: func(agents json.RawMessage, _ []string) (adminapi.UpgradePreview, error) {
					req.Agents = agents
					return call(cmd.Context(), a, adminapi.PreviewStage, req)
				},
				none: func() error { return errors.New("none of the agents can stage it") },
				order: func(agents json.RawMessage) (adminapi.BulkActionResponse, error) {
					req.Agents = agents
					return call(cmd.Context(), a, adminapi.StageVersion, req)
				},
				begun: func(p adminapi.UpgradePreview, created adminapi.BulkActionResponse) string {
					return fmt.Sprintf("Staging %s on %s: action %s", what, ofAgents(p.Will, len(p.Items)), deref(created.ActionId))
				},
				done: func(p adminapi.UpgradePreview, created adminapi.BulkActionResponse) string {
					return fmt.Sprintf("%s staged %s by action %s", counted(len(p.Items), "agent"), what, deref(created.ActionId))
				},
			}
			if wait.on {
				o.wait = func(_ adminapi.UpgradePreview, created adminapi.BulkActionResponse) error {
					return a.waitForAction(cmd, deref(created.ActionId), "staged", wait.timeout)
				}
			}
			return o.run(a, cmd, args)
		},
	}
	f := cmd.Flags()
	selection.flags(f)
	f.StringVar(&req.Version, "version", "", "version to stage (required)")
	f.StringVar(&component, "component", "", "name of a component (default: the agents themselves)")
	f.StringVar(&source, "source-uri", "", "URL that hosts download the package from instead of the server")
	f.BoolVar(&force, "force", false, "also on hosts where the version has failed before")
	f.BoolVar(&dryRun, "dry-run", false, "show what would happen and change nothing")
	wait.flags(f, "all hosts have staged the version, or failed to")
	_ = cmd.RegisterFlagCompletionFunc("version", completing(a.versionNames))
	return cmd
}

func printStagePreview(w io.Writer, p adminapi.UpgradePreview) {
	fmt.Fprintf(w, "%d would stage %s, %d would not.\n", p.Will, p.Version, p.Wont)
	printVerdicts(w, p, "RUNS", "STAGE")
}

// actionsRead is how many of the newest actions are read to find one: more than operators order
// while they wait for it.
const actionsRead = 100

// waitForAction prints the progress of an action until every agent has answered it, and returns
// an error unless all have done it. done says what they have done.
func (a *client) waitForAction(cmd *cobra.Command, id, done string, timeout time.Duration) error {
	say, state := changes(cmd.ErrOrStderr()), "the server has not answered"
	return poll(cmd, timeout, func(ctx context.Context) (bool, error) {
		list, err := ask(ctx, a, adminapi.ListActionStatus, url.Values{"perPage": {fmt.Sprint(actionsRead)}})
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(list.Items, func(s adminapi.ActionStatus) bool { return s.ActionId == id })
		if i < 0 {
			return true, fmt.Errorf("action %s is not among the newest %d any more: see `muster actions list`", id, actionsRead)
		}
		s := list.Items[i]
		state = fmt.Sprintf("%d of %d %s, %d failed", s.NbAgentsAck, s.NbAgentsActioned, done, s.NbAgentsFailed)
		say("", state)
		if s.Status == adminapi.INPROGRESS || s.Status == adminapi.ROLLOUTPASSED {
			return false, nil
		}
		for _, e := range s.LatestErrors {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmp.Or(deref(e.Hostname), e.AgentId), e.Error)
		}
		if s.NbAgentsAck < s.NbAgentsActioned {
			return true, fmt.Errorf("%d of %s not %s: the action is %s", s.NbAgentsActioned-s.NbAgentsAck, counted(s.NbAgentsActioned, "agent"), done, s.Status)
		}
		return true, nil
	}, func() error {
		return fmt.Errorf("not done within %s (--timeout): %s; it continues: see `muster actions list`", timeout, state)
	}, nil)
}
