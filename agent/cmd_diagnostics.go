package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/agent/diagnostics"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

func diagnosticsSubcommand() *cobra.Command {
	var top, output string
	c := &cobra.Command{
		Use:   "diagnostics",
		Short: "Write what explains the state of the agent on this host to a zip file, without keys and tokens",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			top, err := resolveTop(top)
			if err != nil {
				return err
			}
			running, err := ownVersion(top)
			if err != nil {
				return err
			}
			now := time.Now()
			s := diagnostics.Source{Disk: disk.OS{}, Top: top, Now: now, Version: map[string]any{
				"version": running.FullVersion(), "build": running.Identity.String(), "home": running.Home, "top": top,
				"os": runtime.GOOS, "arch": runtime.GOARCH, "host": host.Read(),
			}}
			if h, err := askHealth(c, top); err == nil {
				s.Health = h
			} else {
				s.Problem = err.Error()
			}
			path, err := writeDiagnostics(s, output)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), path)
			return err
		},
	}
	topFlag(c, &top)
	c.Flags().StringVarP(&output, "output", "o", "", "path of the file (default: a new one in the current folder)")
	return c
}

// writeDiagnostics writes a new file, which only its owner may read, and returns its path.
func writeDiagnostics(s diagnostics.Source, path string) (string, error) {
	if path == "" {
		path = diagnostics.FileName(s.Now)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	err = s.Collect(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(path) // the error is what matters
	}
	return path, err
}
