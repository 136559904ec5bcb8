package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// downloadTimeout bounds the download of one file: 100 MiB at 30 kB/s.
const downloadTimeout = time.Hour

// diagnosticsResult is what agents diagnostics prints with -o json.
type diagnosticsResult struct {
	adminapi.Upload
	// File is where the file was saved; empty with --no-wait.
	File string `json:"file,omitempty"`
}

func (a *client) newAgentsDiagnostics() *cobra.Command {
	var (
		file    string
		noWait  bool
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "diagnostics AGENT",
		Short: "Request the diagnostics of an agent and download them",
		Long: `Request the diagnostics of an agent, wait until it has sent them and save the file. An
agent that is offline sends them if it returns within three hours; the server keeps the
file for 90 days. Ctrl-C ends the wait and leaves the request.`,
		Example: `  muster agents diagnostics web-01
  muster agents diagnostics web-01 --file web-01.zip
  muster agents diagnostics web-01 --no-wait`,
		Args:              oneAgent,
		ValidArgsFunction: completing(a.agentNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := a.agentID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			created, err := call(cmd.Context(), a, adminapi.RequestDiagnostics, adminapi.DiagnosticsRequest{}, id)
			if err != nil {
				return err
			}
			if noWait {
				return a.show(cmd.OutOrStdout(), created, func(w io.Writer) {
					fmt.Fprintf(w, "Requested: action %s\n", created.ActionId)
				})
			}
			u, err := a.waitForUpload(cmd, id, created.ActionId, timeout)
			if err != nil {
				return err
			}
			out := diagnosticsResult{Upload: u, File: file}
			if out.File == "" {
				out.File = filepath.Base(u.Name) // the name is the host's
			}
			if err := a.saveUpload(cmd.Context(), u, out.File); err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), out, func(w io.Writer) { fmt.Fprintln(w, out.File) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "file", "", "where to save the file (default: under its own name in the current folder)")
	f.BoolVar(&noWait, "no-wait", false, "only request them")
	f.DurationVar(&timeout, "timeout", 30*time.Minute, "how long to wait at most")
	return cmd
}

// waitForUpload prints the states of a request until its file is complete.
func (a *client) waitForUpload(cmd *cobra.Command, agentID, actionID string, timeout time.Duration) (u adminapi.Upload, err error) {
	say := changes(cmd.ErrOrStderr())
	err = poll(cmd, timeout, func(ctx context.Context) (bool, error) {
		list, err := ask(ctx, a, adminapi.ListUploads, nil, agentID)
		for _, u = range list.Items {
			switch {
			case u.ActionId != actionID:
			case u.Status == adminapi.UploadReady:
				return true, nil
			case u.Status == adminapi.UploadInProgress:
				say("", "waiting for the agent")
			case u.Status == adminapi.UploadAwaiting:
				say("", "the agent is sending "+u.Name)
			default:
				return true, fmt.Errorf("the agent has sent no diagnostics (%s): %s", u.Status, cmp.Or(deref(u.Error), "see its log"))
			}
		}
		return false, err
	}, func() error {
		return fmt.Errorf("no diagnostics within %s (--timeout): the request stays for three hours, action %s", timeout, actionID)
	}, nil)
	return u, err
}

// saveUpload downloads a file to a new one, which only its owner may read.
func (a *client) saveUpload(ctx context.Context, u adminapi.Upload, path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(path) // the error is what matters
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	resp, err := a.open(ctx, request{call: adminapi.GetUpload.Call, path: []string{u.Id, u.Name}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(f, resp.Body)
	return err
}
