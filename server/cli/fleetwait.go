package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/rollout/spec"
)

// condition is what a subcommand waits for. Without a type it is that the object is gone.
type condition struct {
	of     spec.ConditionType
	status spec.ConditionStatus
}

func (c condition) String() string {
	switch {
	case c.of == "":
		return "deleted"
	case c.status == spec.True:
		return string(c.of)
	}
	return fmt.Sprintf("%s=%s", c.of, c.status)
}

// parseCondition reads --for: delete, condition=Ready or condition=Ready=False.
func parseCondition(text string) (condition, error) {
	if text == "delete" {
		return condition{}, nil
	}
	name, ok := strings.CutPrefix(text, "condition=")
	name, status, given := strings.Cut(name, "=")
	if !given {
		status = string(spec.True)
	}
	var c condition
	for _, t := range spec.ConditionTypes {
		if strings.EqualFold(name, string(t)) {
			c.of = t
		}
	}
	for _, s := range []spec.ConditionStatus{spec.True, spec.False, spec.Unknown} {
		if strings.EqualFold(status, string(s)) {
			c.status = s
		}
	}
	if !ok || c.of == "" || c.status == "" {
		return c, fmt.Errorf("--for is %q, want delete, or condition=TYPE or condition=TYPE=STATUS, with one of the types %s and True, False or Unknown", text, conditionWords())
	}
	return c, nil
}

func conditionWords() string {
	return strings.Join(each(spec.ConditionTypes, func(t spec.ConditionType) string { return string(t) }), ", ")
}

// metBy reports whether an object of at least a generation has the condition, and describes
// the state. stuck: it does not get the condition before somebody does something.
func (c condition) metBy(f *spec.Fleet, generation int64) (met, stuck bool, state string) {
	if c.of == "" {
		return false, false, "exists"
	}
	generation = max(generation, f.Metadata.Generation)
	got := conditionOf(f, c.of)
	switch {
	case f.Status.ObservedGeneration < generation:
		return false, false, fmt.Sprintf("the server has not observed generation %d yet", generation)
	case got.Status == "":
		return false, false, fmt.Sprintf("%s is not known yet", c.of)
	}
	met = got.Status == c.status
	stalled := conditionOf(f, spec.Stalled)
	stuck = !met && stalled.Status == spec.True && c.of != spec.Stalled
	state = fmt.Sprintf("%s is %s: %s", c.of, got.Status, got.Reason)
	if got.Message != "" {
		state += ": " + trimPeriod(got.Message)
	}
	if s := f.Status.Suspended; s != nil {
		state += fmt.Sprintf("; suspended by %s, resume it with `muster fleets resume %s`", s.By, f.Metadata.Name)
	} else if stalled.Status == spec.True && c.of != spec.Stalled && stalled.Message != got.Message {
		state += fmt.Sprintf("; stalled: %s", trimPeriod(cmp.Or(stalled.Message, stalled.Reason)))
	}
	return met, stuck, state
}

// awaitedFleet is an object that a subcommand waits for.
type awaitedFleet struct {
	name       string
	generation int64 // that it applied; 0: any
}

func (a *client) newWait() *cobra.Command {
	var (
		until   string
		timeout time.Duration
	)
	fleets := &cobra.Command{
		Use:     "fleets NAME… --for {condition=TYPE | delete}",
		Aliases: []string{"fleet"},
		Short:   "Wait until objects of kind Fleet have a condition",
		Long: `Wait until objects of kind Fleet have a condition, or are deleted. The conditions are
  Ready        all agents run what the spec says, except those that their owner left out
  Progressing  a rollout is under way
  Promoting    it is past its canaries, so that a change of the spec waits for its end
  Degraded     agents failed to reach a version, or went back from it
  Stalled      nothing happens until somebody does something

Progress is printed to standard error. The command ends early if every object that does not
have the condition yet is stalled, such as after a failure. The error says which objects do
not have it, and why. The exit code is
  0  all objects have the condition
  1  the time is over, or another error
  2  wrong flags or arguments
  7  objects are stalled`,
		Example: `  muster wait fleets web --for condition=Ready --timeout 2h
  muster wait fleets web --for condition=Degraded=False
  muster wait fleets web --for delete`,
		Args:              someArgs("no object is named: `muster get fleets` shows them"),
		ValidArgsFunction: completing(a.fleetNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if until == "" {
				return &usageError{errors.New("--for is missing, such as --for condition=Ready")}
			}
			c, err := parseCondition(until)
			if err != nil {
				return &usageError{err}
			}
			got, err := a.awaitFleets(cmd, each(args, func(name string) awaitedFleet { return awaitedFleet{name: name} }), c, timeout)
			if err != nil {
				return err
			}
			return a.showObjects(cmd.OutOrStdout(), got, len(args) == 1, func(io.Writer) {}) // people have seen the lines
		},
	}
	fleets.Flags().StringVar(&until, "for", "", "what to wait for: condition=TYPE, condition=TYPE=STATUS, or delete (required)")
	fleets.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "how long to wait at most")
	_ = fleets.RegisterFlagCompletionFunc("for", completeWords(append(each(spec.ConditionTypes, func(t spec.ConditionType) string { return "condition=" + string(t) }), "delete")))
	outputs(fleets, "yaml", "name")
	return noun(&cobra.Command{Use: "wait", Short: "Wait for declared objects"}, fleets)
}

// awaitFleets waits until all objects have the condition, and prints how their states change.
// It returns the objects as they are then, without those that are deleted.
func (a *client) awaitFleets(cmd *cobra.Command, objects []awaitedFleet, c condition, timeout time.Duration) (got []json.RawMessage, err error) {
	say, last := changes(cmd.ErrOrStderr()), map[string]string{}
	states := func() string {
		return strings.Join(each(objects, func(o awaitedFleet) string { return fmt.Sprintf("fleet/%s: %s", o.name, last[o.name]) }), "; ")
	}
	err = poll(cmd, timeout, func(ctx context.Context) (bool, error) {
		var waiting []awaitedFleet
		stalled := 0
		for _, o := range objects {
			met, stuck, state, raw, err := a.checkFleet(ctx, o, c)
			if err != nil {
				return true, err
			}
			if ctx.Err() != nil && !met {
				state = cmp.Or(last[o.name], "the server has not answered")
			}
			last[o.name] = state
			say(o.name, state)
			if stuck {
				stalled++
			}
			if !met {
				waiting = append(waiting, o)
				continue
			}
			if raw != nil {
				got = append(got, raw)
			}
			if a.output == "human" {
				fmt.Fprintf(cmd.OutOrStdout(), "fleet/%s %s\n", o.name, strings.ToLower(c.String()))
			}
		}
		if objects = waiting; len(objects) > 0 && stalled == len(objects) { // the others, if there were any, have the condition
			return true, &exitError{exitStalled, fmt.Errorf("not %s, and nothing happens before somebody does something: %s", c, states())}
		}
		return len(objects) == 0, nil
	}, func() error {
		return fmt.Errorf("not %s within %s (--timeout): %s; the server goes on", c, timeout, states())
	}, &exitError{interrupted, errors.New("stopped waiting; the server goes on: see `muster get fleets`")})
	return got, err
}

// checkFleet is metBy for an object as it is now. raw is the object, nil if there is none. Only an
// error that waiting does not mend is returned.
func (a *client) checkFleet(ctx context.Context, o awaitedFleet, c condition) (met, stuck bool, state string, raw json.RawMessage, err error) {
	f, raw, err := a.fleet(ctx, o.name)
	switch {
	case err == nil:
		met, stuck, state = c.metBy(&f, o.generation)
		return met, stuck, state, raw, nil
	case c.of == "" && isRefusal(err, http.StatusNotFound):
		return true, false, "is deleted", nil, nil
	case isFinal(err):
		return false, false, "", nil, err
	}
	return false, false, err.Error(), nil, nil
}
