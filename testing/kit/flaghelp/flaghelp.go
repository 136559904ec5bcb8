// Package flaghelp checks the help texts of command-line flags.
package flaghelp

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Check fails the test if a flag of cmd or of a subcommand has several words in
// back-quotes in its help: pflag shows what is quoted as the name of the flag's value.
func Check(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if name, _ := pflag.UnquoteUsage(f); strings.Contains(name, " ") {
			t.Errorf("%s --help shows --%s %s: remove the back-quotes", cmd.CommandPath(), f.Name, name)
		}
	})
	for _, sub := range cmd.Commands() {
		Check(t, sub)
	}
}
