// Package packagecmd implements `muster package`, with which release engineers build,
// sign and inspect packages on their own machines. Subcommands that need a server reach
// it through Remote, which the program that uses this package provides.
package packagecmd

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// New returns a new command with the subcommands that need no server.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "package",
		Short: "Build, sign and inspect packages",
		Long: `A package is the archive that an agent downloads to upgrade itself, or a component that it
runs: a tar.gz or zip file with a manifest.yaml. Hosts install only packages that are in the targets
file, which is signed by keys they trust (see ` + "`muster package keys`" + `).

Legacy packages, which have the files package.version and commit instead of a manifest,
can be inspected, signed, pushed and installed too.`,
		Example: `  muster package keys init --dir release
  muster package build --version 1.1.0 --file muster-agent=bin/muster-agent --file muster-watcher=bin/muster-watcher
  muster package push muster-agent-1.1.0-linux-amd64.tar.gz --targets-key release/targets-1.key`,
		SilenceUsage: true,
	}
	cmd.AddCommand(newBuild(), newExample(), newInspect())
	return cmd
}

// Values of -o.
const (
	outputHuman = "human"
	outputJSON  = "json"
)

// addOutputFlag adds the flag for the format of the output, and has the subcommand check it.
func addOutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", outputHuman, "output format: human or json")
	before(cmd, func() error {
		if *output != outputHuman && *output != outputJSON {
			return fmt.Errorf("--output is %q, want %s or %s", *output, outputHuman, outputJSON)
		}
		return nil
	})
}

// reporting makes cmd, which takes no arguments unless it says otherwise, run something and report what
// that returns in the format of -o.
func reporting[R any](cmd *cobra.Command, run func(cmd *cobra.Command, args []string) (R, error), human func(R, io.Writer)) *cobra.Command {
	var output string
	addOutputFlag(cmd, &output)
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := run(cmd, args)
		if err != nil {
			return err
		}
		if output == outputJSON {
			return WriteJSON(cmd.OutOrStdout(), r)
		}
		human(r, cmd.OutOrStdout())
		return nil
	}
	return cmd
}

// before has a subcommand check something before it runs, after what it checks already.
func before(cmd *cobra.Command, check func() error) {
	first := cmd.PreRunE
	cmd.PreRunE = func(c *cobra.Command, args []string) error {
		if first != nil {
			if err := first(c, args); err != nil {
				return err
			}
		}
		return check()
	}
}

// hinted adds the next thing to try to an error, on a line of its own.
func hinted(err error, format string, args ...any) error {
	return fmt.Errorf("%w\nTry: %s", err, fmt.Sprintf(format, args...))
}

// oneArchive is cobra.ExactArgs(1) with an error that shows an example.
func oneArchive(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		return nil
	case 0:
		return hinted(errors.New("no archive is named"), "%s muster-agent-1.1.0-linux-amd64.tar.gz", cmd.CommandPath())
	}
	return fmt.Errorf("%d archives are named, want one", len(args))
}
