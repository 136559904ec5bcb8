package cli

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// exampleFleet is an object of kind Fleet with every key explained.
//
//go:embed example/fleet.yaml
var exampleFleet string

// fleetAnswer is the answer to a request about objects of kind Fleet. Its body is kept as it is,
// so that objects of any version are printed whole.
type fleetAnswer struct {
	body     json.RawMessage
	created  bool
	warnings []string
}

// warningHeader matches a Warning header as Kubernetes writes it.
var warningHeader = regexp.MustCompile(`^299 \S+ (".*")$`)

// fleetCall sends a request about objects of kind Fleet. text is an object in YAML, or nil.
func (a *client) fleetCall(ctx context.Context, op *adminapi.Call, q url.Values, text []byte, name ...string) (got fleetAnswer, err error) {
	t, err := a.server.resolve()
	if err != nil {
		return got, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r := request{call: op, path: name, query: q}
	if text != nil {
		r.header, r.body = http.Header{"Content-Type": {"application/yaml"}}, bytes.NewReader(text)
	}
	resp, err := t.do(ctx, r)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	if got.body, err = io.ReadAll(resp.Body); err != nil {
		return got, t.explain(err)
	}
	for _, h := range resp.Header.Values("Warning") {
		if m := warningHeader.FindStringSubmatch(h); m != nil {
			h = m[1]
			if text, err := strconv.Unquote(h); err == nil {
				h = text
			}
		}
		got.warnings = append(got.warnings, h)
	}
	got.created = resp.StatusCode == http.StatusCreated
	return got, nil
}

// object decodes an object of the current version.
func object(body json.RawMessage) (f spec.Fleet, err error) {
	if err := json.Unmarshal(body, &f); err != nil {
		return f, undecodable(err)
	}
	return f, nil
}

// metadataOf decodes the metadata of an object of any version.
func metadataOf(body json.RawMessage) (spec.Metadata, error) {
	var f struct {
		Metadata spec.Metadata `json:"metadata"`
	}
	err := json.Unmarshal(body, &f)
	return f.Metadata, err
}

func (a *client) fleet(ctx context.Context, name string) (spec.Fleet, json.RawMessage, error) {
	got, err := a.fleetCall(ctx, adminapi.GetFleet.Call, nil, nil, name)
	if err != nil {
		return spec.Fleet{}, nil, err
	}
	f, err := object(got.body)
	return f, got.body, err
}

// objectList is a list of objects as the server sends it.
type objectList struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   objectListMeta    `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
}

type objectListMeta struct {
	Total int `json:"total"`
}

func listOf(items []json.RawMessage) objectList {
	return objectList{APIVersion: spec.APIVersion, Kind: spec.Kind + "List", Metadata: objectListMeta{len(items)}, Items: items}
}

// fleets returns all objects, or those with the labels of a selector.
func (a *client) fleets(ctx context.Context, selector string) (list objectList, err error) {
	q := url.Values{"limit": {fmt.Sprint(pageSize)}}
	if selector != "" {
		q.Set("labelSelector", selector)
	}
	all := []json.RawMessage{}
	for len(all) < maxListed {
		q.Set("offset", fmt.Sprint(len(all)))
		got, err := a.fleetCall(ctx, adminapi.ListFleets.Call, q, nil)
		if err != nil {
			return list, err
		}
		if err := json.Unmarshal(got.body, &list); err != nil {
			return list, undecodable(err)
		}
		all = append(all, list.Items...)
		if len(list.Items) < pageSize {
			break
		}
	}
	return listOf(all), nil
}

// showObjects prints objects in the form that -o names, or calls human. one prints a single
// object without a list around it.
func (a *client) showObjects(w io.Writer, objects []json.RawMessage, one bool, human func(io.Writer)) error {
	switch a.output {
	case "yaml":
		return writeObjects(w, objects)
	case "name":
		for _, o := range objects {
			m, err := metadataOf(o)
			if err != nil {
				return err
			}
			fmt.Fprintln(w, "fleet/"+m.Name)
		}
		return nil
	}
	if one && len(objects) == 1 {
		return a.show(w, objects[0], human)
	}
	return a.show(w, listOf(objects), human)
}

// writeObjects prints objects as YAML documents.
func writeObjects(w io.Writer, objects []json.RawMessage) error {
	docs, err := tryEach(objects, func(o json.RawMessage) (*yaml.Node, error) { return yamlOf(o) })
	if err != nil {
		return err
	}
	return writeYAML(w, docs...)
}

func (a *client) fleetNames(ctx context.Context) ([]string, error) {
	list, err := a.fleets(ctx, "")
	var names []string
	for _, raw := range list.Items {
		if f, err := object(raw); err == nil {
			names = append(names, f.Metadata.Name)
		}
	}
	return names, err
}

var oneFleet = oneArg("the name of one object: `muster get fleets` shows them")

func (a *client) newGet() *cobra.Command {
	fleets := a.newFleetsList("fleets")
	fleets.Aliases = []string{"fleet"}
	return noun(&cobra.Command{Use: "get", Short: "Show declared objects"}, fleets)
}

// newFleetsList returns the subcommand that shows objects, under a name: muster get fleets, and muster
// fleets list, as of other things.
func (a *client) newFleetsList(name string) *cobra.Command {
	var selector string
	cmd := &cobra.Command{
		Use:   name + " [NAME]",
		Short: "List the objects of kind Fleet, or show one",
		Long: `List the objects of kind Fleet, or show one with its conditions.

-o json and -o yaml print objects whole, with their status. -o wide adds columns to the
list.`,
		Example: `  muster get fleets
  muster get fleets --selector team=web -o wide
  muster get fleets web -o yaml`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completingFirst(a.fleetNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if selector != "" {
					return &usageError{errors.New("--selector chooses objects of the list: leave it out, or the name")}
				}
				return a.showFleet(cmd, args[0])
			}
			list, err := a.fleets(cmd.Context(), selector)
			if err != nil {
				return err
			}
			objects, err := tryEach(list.Items, object)
			if err != nil {
				return err
			}
			return a.showObjects(cmd.OutOrStdout(), list.Items, false, func(w io.Writer) {
				if len(objects) == 0 {
					fmt.Fprintln(w, "no objects: create one with `muster apply`; `muster fleets example` prints one to start from")
					return
				}
				fleetTable(w, objects, a.output == "wide", time.Now())
			})
		},
	}
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "list only objects with these labels, such as team=web,stage=prod")
	outputs(cmd, "yaml", "wide", "name")
	return cmd
}

func (a *client) showFleet(cmd *cobra.Command, name string) error {
	f, raw, err := a.fleet(cmd.Context(), name)
	if err != nil {
		return err
	}
	return a.showObjects(cmd.OutOrStdout(), []json.RawMessage{raw}, true, func(w io.Writer) {
		now := time.Now()
		if a.output == "wide" {
			fleetTable(w, []spec.Fleet{f}, true, now)
			return
		}
		printFleet(w, &f, now)
	})
}

func (a *client) newDelete() *cobra.Command {
	one := &cobra.Command{
		Use:     "fleet NAME",
		Aliases: []string{"fleets"},
		Short:   "Delete an object of kind Fleet",
		Long: `Delete an object of kind Fleet. Its agents keep what they run. A rollout under way is
cancelled, unless it is promoting: then it goes on to its end.

The command asks for confirmation; without a terminal, pass --yes.`,
		Example:           "  muster delete fleet web --why \"moved to fleet/edge\"\n  muster delete fleet web --yes",
		Args:              oneFleet,
		ValidArgsFunction: completingFirst(a.fleetNames),
	}
	yes := one.Flags().BoolP("yes", "y", false, "delete it without asking for confirmation")
	dryRun := one.Flags().Bool("dry-run", false, "check everything and change nothing")
	one.RunE = func(cmd *cobra.Command, args []string) error {
		name := args[0]
		if !*yes && !*dryRun {
			if !isTerminal(cmd.InOrStdin()) {
				return &usageError{errNoQuestion}
			}
			f, _, err := a.fleet(cmd.Context(), name)
			if err != nil {
				return err
			}
			question := fmt.Sprintf("Delete fleet/%s? Its %s keep what they run.", name, counted(f.Status.Agents, "agent"))
			if err := confirm(cmd, question, "fleet/"+name+" is not deleted"); err != nil {
				return err
			}
		}
		got, err := a.deleteFleet(cmd.Context(), name, *dryRun)
		if err != nil {
			return err
		}
		return a.showObjects(cmd.OutOrStdout(), []json.RawMessage{got.body}, true, func(w io.Writer) {
			fmt.Fprintf(w, "fleet/%s deleted%s\n", name, dryRunWords(*dryRun))
		})
	}
	outputs(one, "yaml", "name")
	return noun(&cobra.Command{Use: "delete", Short: "Delete declared objects"}, one)
}

// errNoQuestion is the error of a subcommand that would ask for confirmation and cannot.
var errNoQuestion = errors.New("standard input is not a terminal, so the question cannot be answered: add --yes to go on without it")

func (a *client) deleteFleet(ctx context.Context, name string, dryRun bool) (fleetAnswer, error) {
	q := url.Values{}
	if dryRun {
		q.Set("dryRun", "All")
	}
	return a.fleetCall(ctx, adminapi.DeleteFleet.Call, q, nil, name)
}

func dryRunWords(dryRun bool) string {
	if dryRun {
		return " (dry run)"
	}
	return ""
}

func (a *client) newFleets() *cobra.Command {
	return noun(&cobra.Command{
		Use:   "fleets",
		Short: "Declare which agents run which versions: list, example, hash, history, resume",
		Long: `An object of kind Fleet declares which agents run which versions. People and tools change
the object and nothing else: the server starts a rollout when something has changed that
needs one. Which tools work with it, and how, is in "Declare fleets with GitOps tools" of
the documentation.

  muster fleets example > fleet.yaml
  muster diff -f fleet.yaml
  muster apply -f fleet.yaml --wait
  muster get fleets

` + "`muster explain fleet`" + ` explains every field. Orders for agents of an object, such as
muster agents upgrade, are refused; with --take-over they suspend the object until its
spec changes or it is resumed.`,
	},
		a.newFleetsList("list"),
		newExample("Print an object with every key explained", "  muster fleets example > fleet.yaml", func() string { return exampleFleet }),
		a.newFleetsHash(), a.newFleetsHistory(), a.newFleetsResume())
}

func (a *client) newFleetsHistory() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "Show who changed an object, what and why, newest first",
		Long: `Show who changed an object, what and why, and which rollouts followed, newest first. It is
read from the audit trail, so it remains when the object is deleted.`,
		Example:           "  muster fleets history web\n  muster fleets history web -o json | jq '.items[0].rollouts'",
		Args:              oneFleet,
		ValidArgsFunction: completingFirst(a.fleetNames),
	}
	limit := cmd.Flags().Int("limit", 100, "maximum number of changes to list")
	return running(a, cmd, func(cmd *cobra.Command, args []string) (got adminapi.FleetHistory, err error) {
		got.Items = []adminapi.FleetChange{}
		for len(got.Items) < *limit {
			size := min(*limit-len(got.Items), pageSize)
			page, err := ask(cmd.Context(), a, adminapi.ListFleetHistory, url.Values{"offset": {fmt.Sprint(len(got.Items))}, "limit": {fmt.Sprint(size)}}, args[0])
			if err != nil {
				return got, err
			}
			got.Items, got.Total = append(got.Items, page.Items...), page.Total
			if len(page.Items) < size {
				break
			}
		}
		return got, nil
	}, func(w io.Writer, got adminapi.FleetHistory) {
		tableOf(w, "AT\tWHO\tWHAT\tGENERATION\tHASH\tCHANGED\tROLLOUTS\tWHY", got.Items, func(c adminapi.FleetChange) []any {
			generation := "-"
			set(c.Generation != 0, &generation, fmt.Sprint(c.Generation))
			rollouts := each(c.Rollouts, func(r adminapi.FleetRolloutRef) string { return r.ID + " " + string(r.State) })
			return []any{atTime(c.At), c.By, c.Action, generation, shortHash(c.Hash), cmp.Or(strings.Join(c.Changed, " "), "-"), cmp.Or(strings.Join(rollouts, ", "), "-"), c.Why}
		})
		if got.Total > len(got.Items) {
			fmt.Fprintf(w, "… and %d more: see --limit\n", got.Total-len(got.Items))
		}
	})
}

func (a *client) newFleetsResume() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "Resume an object that an order has suspended",
		Long: `Resume an object of which an order has taken agents over (--take-over). The server then
brings all of its agents to the spec again. A change of the spec resumes it too.`,
		Example:           "  muster fleets resume web --why \"the incident is over\"",
		Args:              oneFleet,
		ValidArgsFunction: completingFirst(a.fleetNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := call(cmd.Context(), a, adminapi.Operation[adminapi.WhyRequest, json.RawMessage]{Call: adminapi.ResumeFleet.Call}, adminapi.WhyRequest{}, args[0])
			if err != nil {
				return err
			}
			return a.showObjects(cmd.OutOrStdout(), []json.RawMessage{raw}, true, func(w io.Writer) {
				fmt.Fprintf(w, "fleet/%s resumed. Follow it with `muster wait fleets %[1]s --for condition=Ready`.\n", args[0])
			})
		},
	}
	outputs(cmd, "yaml", "name")
	return cmd
}
