package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// Exit codes of `muster diff`, as those of diff and of kubectl. Scripts depend on them.
const (
	exitDifferent = 1
	exitDiffError = 2
)

// fleetDiff is adminapi.FleetDiff with the objects as the server sends them.
type fleetDiff struct {
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after"`
	adminapi.FleetDiffResult
}

func (a *client) newDiff() *cobra.Command {
	var files objectFiles
	cmd := &cobra.Command{
		Use:   "diff --file FILE",
		Short: "Show what applying files would change, and what the rollout would do",
		Long: `Show what ` + "`muster apply`" + ` would change: the difference of each object, whether a rollout
would start or why none would, and what it would do to the fleet as it is now. Nothing is
changed.

The exit code is
  0  nothing differs
  1  an object differs
  2  an error`,
		Example: `  muster diff -f fleet.yaml
  muster diff -f fleets/ -o json | jq '.items[] | select(.startsRollout) | .after.metadata.name'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := a.diff(cmd, &files)
			var exit *exitError
			if err == nil || errors.As(err, &exit) || errors.Is(err, context.Canceled) && cmd.Context().Err() != nil {
				return err
			}
			return &exitError{exitDiffError, err}
		},
	}
	files.flags(cmd)
	return cmd
}

func (a *client) diff(cmd *cobra.Command, files *objectFiles) error {
	var text strings.Builder
	differ := 0
	all, err := eachDiff(a, cmd, files, func(name string, d fleetDiff) (fleetDiff, error) {
		if d.Before == nil || len(d.Changed) > 0 {
			differ++
		}
		return d, printFleetDiff(&text, name, d)
	})
	if err != nil {
		return err
	}
	err = a.show(cmd.OutOrStdout(), all, func(w io.Writer) { _, _ = io.WriteString(w, text.String()) })
	if err != nil || differ == 0 {
		return err
	}
	return &exitError{exitDifferent, fmt.Errorf("%d of %s would change", differ, counted(len(all.Items), "object"))}
}

// items is the JSON of a list.
type items[T any] struct {
	Items []T `json:"items"`
}

// eachDiff calls do for each object in files, with what applying it would change.
func eachDiff[T any](a *client, cmd *cobra.Command, files *objectFiles, do func(name string, d fleetDiff) (T, error)) (all items[T], err error) {
	objects, err := files.read(cmd)
	if err != nil {
		return all, err
	}
	for _, d := range objects {
		got, err := a.diffOf(cmd, d, files.validate)
		if err != nil {
			return all, err
		}
		one, err := do(d.name, got)
		if err != nil {
			return all, err
		}
		all.Items = append(all.Items, one)
	}
	return all, nil
}

// diffOf returns what applying an object would change, and prints the server's warnings.
func (a *client) diffOf(cmd *cobra.Command, d *declaration, validate string) (one fleetDiff, err error) {
	got, err := a.fleetCall(cmd.Context(), adminapi.DiffFleet.Call, url.Values{"validate": {validate}}, d.text, d.name)
	if err != nil {
		return one, d.locate(err)
	}
	for _, w := range got.warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", d.locateText(w))
	}
	if err := json.Unmarshal(got.body, &one); err != nil {
		return one, undecodable(err)
	}
	return one, nil
}

// hashed is the rollout hash of an object in a file.
type hashed struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
}

func (a *client) newFleetsHash() *cobra.Command {
	var files objectFiles
	cmd := running(a, &cobra.Command{
		Use:   "hash --file FILE",
		Short: "Print the rollout hashes of the objects in files",
		Long: `Print the hashes of the objects in files, as the server would request them. A rollout
starts only if the hash changes, and spec.forcePromote takes it.`,
		Example: "  muster fleets hash -f fleet.yaml",
	}, func(cmd *cobra.Command, _ []string) (items[hashed], error) {
		return eachDiff(a, cmd, &files, func(name string, d fleetDiff) (hashed, error) { return hashed{name, d.HashAfter}, nil })
	}, func(w io.Writer, all items[hashed]) {
		for _, h := range all.Items {
			fmt.Fprintf(w, "%s  fleet/%s\n", h.Hash, h.Name)
		}
	})
	files.flags(cmd)
	return cmd
}

// declaredYAML is what users have written of an object, as YAML with sorted keys; empty if there
// is no object.
func declaredYAML(body json.RawMessage) (string, error) {
	if body == nil {
		return "", nil
	}
	n, err := declaredNode(body)
	if err != nil {
		return "", err
	}
	sortKeys(n)
	var text bytes.Buffer
	err = writeYAML(&text, n)
	return text.String(), err
}

// planField matches how an error of a preview begins with the field of the rollout's plan.
var planField = regexp.MustCompile(`^\[[a-z_.]+\]: `)

func printFleetDiff(w io.Writer, name string, d fleetDiff) error {
	was, err := declaredYAML(d.Before)
	if err != nil {
		return err
	}
	is, err := declaredYAML(d.After)
	if err != nil {
		return err
	}
	from := "fleet/" + name
	if was == "" {
		from = "/dev/null"
	}
	fmt.Fprint(w, udiff.Unified(from, "fleet/"+name, was, is))
	switch {
	case d.Before != nil && len(d.Changed) == 0:
		fmt.Fprintf(w, "fleet/%s: nothing differs\n", name)
		return nil
	case d.HashBefore == d.HashAfter:
		fmt.Fprintf(w, "\nfleet/%s: hash %s stays\n", name, shortHash(d.HashAfter))
	default:
		fmt.Fprintf(w, "\nfleet/%s: hash %s → %s\n", name, shortHash(cmp.Or(d.HashBefore, "none")), shortHash(d.HashAfter))
	}
	what := "no rollout starts"
	if d.StartsRollout {
		what = "a rollout starts"
	}
	fmt.Fprintf(w, "%s: %s\n", what, d.Reason)
	if d.WaitsFor != "" {
		fmt.Fprintf(w, "it waits for %s\n", d.WaitsFor)
	}
	if len(d.Previews) > 0 {
		tableOf(w, "PART\tVERSION\tAGENTS\tBATCHES\tLEFT OUT\tTAKES ABOUT\tREMARK", d.Previews, func(p adminapi.FleetPreview) []any {
			remark := planField.ReplaceAllString(p.Error, "")
			set(remark == "" && p.Forced, &remark, "goes down")
			return []any{p.Part, cmp.Or(p.Version, "-"), p.Targets, p.Batches, p.Skipped, cmp.Or(p.DurationText, "-"), remark}
		})
		for _, p := range d.Previews {
			if why := p.LeftOut; why != "" {
				fmt.Fprintf(w, "%s: left out are %s\n", p.Part, why)
			}
			for _, text := range p.Warnings {
				fmt.Fprintf(w, "warning: %s: %s\n", p.Part, text)
			}
		}
	}
	fmt.Fprintln(w)
	return nil
}
