package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/watcher/probe"
)

func statusSubcommand() *cobra.Command {
	var top, output string
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the agent on this host; exits 0 only if it and its connection to the server are healthy",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "human" && output != "json" {
				return fmt.Errorf("-o is %q, want human or json", output)
			}
			top, err := resolveTop(top)
			if err != nil {
				return err
			}
			h, err := askHealth(c, top)
			if err != nil {
				return err
			}
			if output == "json" {
				enc := json.NewEncoder(c.OutOrStdout())
				enc.SetIndent("", "  ")
				err = enc.Encode(h)
			} else {
				err = printHealth(c.OutOrStdout(), h, time.Now())
			}
			if err != nil {
				return err
			}
			if !healthy(h) {
				return exitCode(1)
			}
			return nil
		},
	}
	topFlag(c, &top)
	c.Flags().StringVarP(&output, "output", "o", "human", "human or json")
	return c
}

// healthy reports whether the agent and, if it is enrolled, its connection to the server
// are healthy.
func healthy(h probe.Health) bool {
	return h.State == probe.Healthy && (h.Fleet.URL == "" || h.Fleet.State == probe.Healthy)
}

// agentIn returns a client of the agent in the folder that the flag --top names, and the folder.
func agentIn(flag string) (client probe.Client, top string, err error) {
	top, err = resolveTop(flag)
	return probe.Client{Dial: probe.DialSocket(top)}, top, err
}

func askHealth(c *cobra.Command, top string) (probe.Health, error) {
	h, err := probe.Client{Dial: probe.DialSocket(top)}.Health(c.Context())
	return h, explainNotRunning(err, top)
}

func explainNotRunning(err error, top string) error {
	if errors.Is(err, probe.ErrNotRunning) {
		return fmt.Errorf("%w in %s (start its service, or %s/muster-agent run; --top names another folder)", err, top, top)
	}
	return err
}

// elapsed returns how long ago something was. The clock may have been set back since.
func elapsed(since, now time.Time) string { return max(0, now.Sub(since)).Round(time.Second).String() }

func printHealth(w io.Writer, h probe.Health, now time.Time) error {
	type line struct{ name, state, message string }
	lines := []line{{"agent", string(h.State), h.Message}}
	f := h.Fleet
	contact := "no contact yet"
	if f.LastCheckin != nil {
		contact = "last contact " + elapsed(*f.LastCheckin, now) + " ago"
	}
	switch {
	case f.URL == "":
		lines = append(lines, line{"server", "none", "not enrolled"})
	case f.Error != "":
		lines = append(lines, line{"server", string(f.State), f.URL + ", " + contact + ": " + f.Error})
	default:
		lines = append(lines, line{"server", string(f.State), f.URL + ", " + contact})
	}
	for _, c := range h.Checks {
		state := probe.Degraded
		if c.AtFault {
			state = probe.Failed
		}
		lines = append(lines, line{"check " + c.Name, string(state), "for " + elapsed(c.Since, now) + ": " + c.Problem})
	}
	for _, w := range h.Workloads {
		message := w.Message
		if !w.FailedSince.IsZero() {
			message = "for " + elapsed(w.FailedSince, now) + ": " + message
		}
		lines = append(lines, line{"component " + w.Name, string(w.State), message})
	}
	for _, r := range h.Rollbacks {
		state, message := "ready", "until "+r.ValidUntil.Local().Format(time.DateTime)
		if r.Problem != "" {
			state, message = "not ready", r.Problem
		}
		name := r.Version
		if h.Is(name) {
			name = r.Build()
		}
		lines = append(lines, line{"rollback to " + name, state, message})
	}
	for _, v := range h.Versions {
		if v.State != probe.VersionStaged {
			continue
		}
		l := line{"staged " + v.Version, "ready", ""}
		if v.Problem != "" {
			l.state, l.message = "not ready", v.Problem
		}
		lines = append(lines, l)
	}
	if h.Staging != nil {
		lines = append(lines, line{"staging", h.Staging.State, upgradeText(*h.Staging)})
	}
	if h.Upgrade != nil {
		lines = append(lines, line{"upgrade", h.Upgrade.State, upgradeText(*h.Upgrade)})
	}
	if _, err := fmt.Fprintf(w, "muster-agent %s, process %d, up %s\n", h.Identity, h.PID, elapsed(h.StartedAt, now)); err != nil {
		return err
	}
	for i, l := range lines {
		branch := "├─"
		if i == len(lines)-1 {
			branch = "└─"
		}
		if l.message != "" {
			l.message = "  " + l.message
		}
		if _, err := fmt.Fprintf(w, "%s %s: %s%s\n", branch, l.name, l.state, l.message); err != nil {
			return err
		}
	}
	return nil
}

func upgradeText(u probe.Upgrade) string { return "to " + u.TargetVersion + upgradeProgress(u) }

// upgradeProgress follows what an upgrade does.
func upgradeProgress(u probe.Upgrade) (s string) {
	if u.Percent > 0 {
		s += fmt.Sprintf(", %.0f %% at %.1f MB/s", u.Percent, u.BytesPerSecond/1e6)
	}
	if u.Message != "" {
		s += ": " + u.Message
	}
	return s
}
