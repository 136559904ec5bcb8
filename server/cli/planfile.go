package cli

import (
	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/fleet"
)

// planFile is a plan in YAML.
type planFile struct {
	yamlFile
	plan fleet.Plan
}

func newPlanFile(name string) planFile {
	return planFile{yamlFile: yamlFile{
		name: name, what: "plan", field: "plan", example: "muster rollouts example", tooLong: ": select agents by labels or policies instead of one by one",
	}}
}

func readPlanFile(cmd *cobra.Command, name string) (planFile, error) {
	f := newPlanFile(name)
	return f, f.read(cmd, &f.plan)
}
