// Package packagecmd is the command `muster package`, with which a release
// engineer builds, signs and looks into packages on a machine of their own. Its
// subcommands here need no server; those that talk to one are added to the
// command by the program that owns it.
package packagecmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// New returns the command. Each call gives a command of its own, to which more
// subcommands may be added.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "package",
		Short: "Build, sign and inspect packages",
		Long: `A package is the archive an agent downloads to upgrade itself: a tar.gz or
zip file with a manifest.yaml, and beside it a signature that names the archive.
Hosts install only packages that are signed by a key they trust. Packages of the
generation before, which have a package.version and a commit file instead of a
manifest, can be inspected, signed, pushed and installed too.`,
		Example: `  muster package keygen --key release.key
  muster package build --version 1.1.0 --file muster-agent=bin/muster-agent --file muster-watcher=bin/muster-watcher
  muster package sign --key release.key muster-agent-1.1.0-linux-amd64.tar.gz
  muster package verify --key release.pub muster-agent-1.1.0-linux-amd64.tar.gz`,
		SilenceUsage: true,
	}
	cmd.AddCommand(newBuild(), newInspect(), newSign(), newVerify(), newKeygen())
	return cmd
}

// Output forms of -o.
const (
	outputHuman = "human"
	outputJSON  = "json"
)

func addOutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", outputHuman, "output form: human or json")
}

func checkOutput(output string) error {
	if output != outputHuman && output != outputJSON {
		return fmt.Errorf("--output is %q, want %s or %s", output, outputHuman, outputJSON)
	}
	return nil
}

// hinted is an error with the next thing to try, on a line of its own.
func hinted(err error, format string, args ...any) error {
	return fmt.Errorf("%w\nTry: %s", err, fmt.Sprintf(format, args...))
}

// oneArchive is cobra.ExactArgs(1) with words of use to somebody who forgot it.
func oneArchive(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		return nil
	case 0:
		return hinted(errors.New("no archive is named"), "%s muster-agent-1.1.0-linux-amd64.tar.gz", cmd.CommandPath())
	}
	return fmt.Errorf("%d archives are named, want one", len(args))
}
